//! The command line of `bench`.

use std::path::PathBuf;

pub(crate) const USAGE: &str =
    "usage: bench [--rounds N] [--runs N] [--docker-rounds N] [--execs N] [--reads N] [--records N] [--json FILE] [--strict]
  --rounds N         latency runs of each contestant (200)
  --runs N           throughput runs of each contestant (400)
  --docker-rounds N  runs of docker, a third of a second each (10); 0 leaves docker out
  --execs N          execs in a row on one server (10000)
  --reads N          reads of a 4 KiB file by each contestant (40000)
  --records N        execs in the record that is queried (1000000)
  --json FILE        also write all measurements as JSON
  --strict           exit with 1 if a bar is missed";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) rounds: usize,
    pub(crate) runs: usize,
    pub(crate) docker_rounds: usize,
    pub(crate) execs: usize,
    pub(crate) reads: usize,
    pub(crate) records: usize,
    pub(crate) json: Option<PathBuf>,
    pub(crate) strict: bool,
}

impl Arguments {
    /// Parses the arguments; the error is a message for the user.
    pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Arguments {
            rounds: 200,
            runs: 400,
            docker_rounds: 10,
            execs: 10_000,
            reads: 40_000,
            records: 1_000_000,
            json: None,
            strict: false,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--rounds" => arguments.rounds = number(&word, &value()?, 1)?,
                "--runs" => arguments.runs = number(&word, &value()?, 1)?,
                "--docker-rounds" => arguments.docker_rounds = number(&word, &value()?, 0)?,
                "--execs" => arguments.execs = number(&word, &value()?, 1)?,
                "--reads" => arguments.reads = number(&word, &value()?, 1)?,
                "--records" => arguments.records = number(&word, &value()?, 1)?,
                "--json" => arguments.json = Some(value()?.into()),
                "--strict" => arguments.strict = true,
                _ => return Err(format!("{word}: no such option")),
            }
        }
        Ok(arguments)
    }
}

fn number(flag: &str, text: &str, least: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| format!("{flag} {text}: not a whole number of at least {least}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Arguments, String> {
        Arguments::read(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn missing_options_have_defaults() {
        let default = read(&[]).unwrap();
        assert_eq!((default.rounds, default.runs, default.docker_rounds), (200, 400, 10));
        assert_eq!((default.execs, default.records, default.json, default.strict), (10_000, 1_000_000, None, false));
    }

    #[test]
    fn all_options_are_parsed() {
        let numbers = ["--rounds", "3", "--runs", "8", "--docker-rounds", "0", "--execs", "5", "--reads", "7"];
        let words = [&numbers[..], &["--records", "6", "--json", "out.json", "--strict"]].concat();
        let json = Some("out.json".into());
        let given =
            Arguments { rounds: 3, runs: 8, docker_rounds: 0, execs: 5, reads: 7, records: 6, json, strict: true };
        assert_eq!(read(&words), Ok(given));
    }

    #[test]
    fn unknown_option_is_named_in_error() {
        for (words, problem) in [
            (&["--rounds", "0"][..], "--rounds 0: not a whole number of at least 1"),
            (&["--runs", "many"], "--runs many: not a whole number of at least 1"),
            (&["--json"], "--json needs a value"),
            (&["--quick"], "--quick: no such option"),
        ] {
            assert_eq!(read(words), Err(problem.to_owned()));
        }
    }
}
