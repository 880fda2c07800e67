//! Tables that line up in a terminal and are tables in a document too.

#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const COLUMNS: usize>(heading: [&str; COLUMNS]) -> Self {
        Table { rows: vec![heading.map(str::to_owned).into()] }
    }

    pub(crate) fn add<const COLUMNS: usize>(&mut self, row: [String; COLUMNS]) {
        self.rows.push(row.into());
    }

    /// The first column is text and stands left; the others are figures and stand right.
    pub(crate) fn to_text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0).max(4)).collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let cell = if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
                text.push_str(if column == 0 { "| " } else { " | " });
                text.push_str(&cell);
            }
            text.push_str(" |\n");
            if number == 0 {
                let line = |(column, width): (usize, &usize)| match column {
                    0 => format!(" {} ", "-".repeat(*width)),
                    _ => format!(" {}: ", "-".repeat(width - 1)),
                };
                let lines: Vec<String> = widths.iter().enumerate().map(line).collect();
                text.push_str(&format!("|{}|\n", lines.join("|")));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_is_in_them() {
        let mut table = Table::new(["who", "ms"]);
        table.add(["bare".to_owned(), "1.05".to_owned()]);
        table.add(["the box ÷ bare".to_owned(), "12.00".to_owned()]);
        let expected = "\
| who            |    ms |
| -------------- | ----: |
| bare           |  1.05 |
| the box ÷ bare | 12.00 |
";
        assert_eq!(table.to_text(), expected);
    }
}
