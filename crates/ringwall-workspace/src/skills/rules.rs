//! What the agentskills rules say of a skill's name and description, as warnings: a skill that breaks them is listed and
//! runs all the same.

use super::front_matter::{About, Form};

const MAX_NAME: usize = 64;
const MAX_DESCRIPTION: usize = 1024;

/// Every rule that is broken, in sentences.
pub(crate) fn warnings(about: &About, folder: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |text: String| warnings.push(text);
    if about.form == Form::Broken {
        warn("The front matter is not a YAML mapping; 'name:' and 'description:' lines were read instead.".to_owned());
    }
    match &about.name {
        None => warn("SKILL.md gives no name.".to_owned()),
        Some(name) => {
            if name.chars().count() > MAX_NAME {
                warn(format!("The name is longer than {MAX_NAME} characters."));
            }
            if !name.chars().all(|character| character == '-' || is_plain(character)) {
                warn("The name has other characters than lower-case letters, digits and '-'.".to_owned());
            }
            if name.starts_with('-') || name.ends_with('-') || name.contains("--") {
                warn("The name begins or ends with '-', or has two of them together.".to_owned());
            }
            if name != folder {
                warn(format!("The name is not that of the skill's directory, '{folder}'."));
            }
        }
    }
    match &about.description {
        None => warn("SKILL.md gives no description.".to_owned()),
        Some(description) if description.chars().count() > MAX_DESCRIPTION => {
            warn(format!("The description is longer than {MAX_DESCRIPTION} characters."));
        }
        Some(_) => {}
    }
    warnings
}

fn is_plain(character: char) -> bool {
    character.is_alphanumeric() && character.to_lowercase().eq([character])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: Option<&str>, description: Option<&str>) -> usize {
        let form = Form::FrontMatter;
        let about = About { name: name.map(str::to_owned), description: description.map(str::to_owned), form };
        warnings(&about, name.unwrap_or("folder")).len()
    }

    #[test]
    fn each_rule_is_one_warning() {
        for good in ["pdf", "pdf-tools", "a1-b2", "数据分析", "ß"] {
            assert_eq!(count(Some(good), Some("x")), 0, "{good}");
        }
        let long = "a".repeat(65);
        for bad in ["PDF", "pdf tools", "pdf_tools", "-pdf", "pdf-", "pdf--tools", long.as_str()] {
            assert_eq!(count(Some(bad), Some("x")), 1, "{bad}");
        }
        assert_eq!(count(None, None), 2);
        assert_eq!(count(Some("pdf"), Some(&"x".repeat(1024))), 0);
        assert_eq!(count(Some("pdf"), Some(&"x".repeat(1025))), 1);
        let about = About { name: Some("b".to_owned()), description: Some("x".to_owned()), form: Form::Broken };
        assert_eq!(warnings(&about, "a").len(), 2);
    }
}
