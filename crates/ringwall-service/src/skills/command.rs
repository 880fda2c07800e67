//! The command that a skill call executes.
//!
//! The two shipped skills run what their inputs contain, under the same rule as an exec of that
//! kind. Every other skill runs its entrypoint unchanged: inputs never become arguments, where a
//! program or shell could read them as options. They are passed as JSON in one environment
//! variable, which is not recorded and exists even for a skill without access to files.

use std::collections::BTreeMap;
use std::ffi::OsString;

use ringwall_policy::{ExecKind, Secret, check_kind};
use serde_json::Value;

use super::error::{InvalidInput, invalid};
use super::shipped::Builtin;
use super::skill::Skill;

/// The variable that holds a skill's inputs.
pub const INPUTS_VARIABLE: &str = "SKILL_INPUTS";

/// The kernel's limit for one variable (`MAX_ARG_STRLEN`) includes the name, `=` and the final NUL.
const MAX_INPUT_BYTES: usize = 128 * 1024 - INPUTS_VARIABLE.len() - 2;

const INPUTS_IN_BOX: &str = "/workspace/inputs/";

#[derive(Debug, Clone)]
pub struct Command {
    pub argv: Vec<OsString>,
    pub env: BTreeMap<String, Secret>,
}

impl Skill {
    /// The command for valid inputs.
    pub fn command(&self, inputs: &Value) -> Result<Command, InvalidInput> {
        let argv = match Builtin::of(&self.id) {
            Some(Builtin::Shell) => shell(inputs)?,
            Some(Builtin::Python) => python(inputs)?,
            None => return self.entrypoint(inputs),
        };
        Ok(Command { argv, env: BTreeMap::new() })
    }

    fn entrypoint(&self, inputs: &Value) -> Result<Command, InvalidInput> {
        let text = inputs.to_string();
        if text.len() > MAX_INPUT_BYTES {
            return Err(invalid(
                "inputs",
                format!(
                    "take {} bytes as JSON, but at most {MAX_INPUT_BYTES} can be handed over; send large data as a file \
                     among the project's inputs",
                    text.len()
                ),
            ));
        }
        Ok(Command {
            argv: self.runtime.entrypoint.iter().map(OsString::from).collect(),
            env: [(INPUTS_VARIABLE.to_owned(), Secret::new(text))].into(),
        })
    }
}

fn shell(inputs: &Value) -> Result<Vec<OsString>, InvalidInput> {
    match text(inputs, "script")? {
        Some(script) => kind(ExecKind::Shell, "script", &["-lc", script]),
        None => Err(invalid("script", "is required")),
    }
}

fn python(inputs: &Value) -> Result<Vec<OsString>, InvalidInput> {
    match (text(inputs, "code")?, text(inputs, "script_path")?) {
        (Some(code), None) => kind(ExecKind::Python, "code", &["-c", code]),
        (None, Some(path)) => kind(ExecKind::Python, "script_path", &[&script_in_box(path)]),
        (None, None) => Err(invalid("code", "is required, unless there is a script_path")),
        (Some(_), Some(_)) => Err(invalid("script_path", "cannot be given together with code")),
    }
}

/// A script may be named by its path in the box, relative to the project (`inputs/main.py`) or
/// relative to the inputs (`main.py`). `check_kind` refuses a result that leads out.
fn script_in_box(path: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    format!("{INPUTS_IN_BOX}{}", path.strip_prefix("inputs/").unwrap_or(path))
}

/// A replaced manifest may have a looser interface, so types are checked again.
fn text<'a>(inputs: &'a Value, field: &str) -> Result<Option<&'a str>, InvalidInput> {
    match inputs.get(field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(invalid(field, "must be a string")),
    }
}

fn kind(kind: ExecKind, field: &str, args: &[&str]) -> Result<Vec<OsString>, InvalidInput> {
    let args: Vec<String> = args.iter().map(|&argument| argument.to_owned()).collect();
    check_kind(kind, kind.command(), &args).map_err(|denial| invalid(field, denial.message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skills::manifest::ManifestValidator;
    use serde_json::json;

    fn builtin(builtin: Builtin) -> Skill {
        let validator = ManifestValidator::new().expect("the schema compiles");
        validator.validate(builtin.id(), builtin.manifest().as_bytes()).expect("a valid manifest")
    }

    fn run(skill: &Skill, inputs: &Value) -> Result<Vec<OsString>, String> {
        skill.validate_inputs(inputs).map_err(|error| error.to_string())?;
        let command = skill.command(inputs).map_err(|error| error.to_string())?;
        assert!(command.env.is_empty());
        Ok(command.argv)
    }

    #[test]
    fn shell_run_runs_its_script() {
        let skill = builtin(Builtin::Shell);
        let words = |words: [&str; 3]| Ok(words.map(OsString::from).to_vec());
        assert_eq!(run(&skill, &json!({"script": "echo $HOME"})), words(["bash", "-lc", "echo $HOME"]));
        assert_eq!(run(&skill, &json!({})), Err("script: is required".into()));
        assert_eq!(run(&skill, &json!({"script": 1})), Err("script: it is not of type \"string\"".into()));
        let unknown = Err("skript: is not an input of this skill".into());
        assert_eq!(run(&skill, &json!({"script": "", "skript": ""})), unknown);
    }

    #[test]
    fn python_run_accepts_code_or_input_script() {
        let skill = builtin(Builtin::Python);
        let code = ["python", "-c", "print(1)"].map(OsString::from).to_vec();
        assert_eq!(run(&skill, &json!({"code": "print(1)"})), Ok(code));
        for path in ["main.py", "inputs/main.py", "/workspace/inputs/main.py"] {
            let script = ["python", "/workspace/inputs/main.py"].map(OsString::from).to_vec();
            assert_eq!(run(&skill, &json!({"script_path": path})), Ok(script), "{path}");
        }
        for path in ["../work/x.py", "a/../../x.py", "/etc/passwd", "/workspace/work/x.py", "/", "a//b", "./x", "x\0"] {
            let error = run(&skill, &json!({"script_path": path})).expect_err(path);
            assert!(error.starts_with("script_path: ") && error.contains("plain path"), "{error}");
        }
        assert_eq!(run(&skill, &json!({})), Err("code: is required, unless there is a script_path".into()));
        let both = run(&skill, &json!({"code": "", "script_path": "x.py"}));
        assert_eq!(both, Err("script_path: cannot be given together with code".into()));
    }

    #[test]
    fn script_path_with_dash_is_not_an_option() {
        let skill = builtin(Builtin::Python);
        let expected = ["python", "/workspace/inputs/-c"].map(OsString::from).to_vec();
        assert_eq!(run(&skill, &json!({"script_path": "-c"})), Ok(expected));
    }

    #[test]
    fn other_skills_get_inputs_as_json_variable() {
        let mut skill = builtin(Builtin::Shell);
        skill.id = "text.count".to_owned();
        skill.runtime.entrypoint = vec!["jq".to_owned(), "-n".to_owned(), "env.SKILL_INPUTS".to_owned()];
        let inputs = json!({"text": "a\nb\0", "n": 1});
        let command = skill.command(&inputs).expect("a command");
        assert_eq!(command.argv, ["jq", "-n", "env.SKILL_INPUTS"]);
        let value = command.env[INPUTS_VARIABLE].expose().to_str().expect("UTF-8");
        assert_eq!(serde_json::from_str::<Value>(value).ok(), Some(inputs));
        assert!(!value.contains(['\n', '\0']));

        let fitting = MAX_INPUT_BYTES - json!({"text": ""}).to_string().len();
        assert!(skill.command(&json!({"text": "x".repeat(fitting)})).is_ok());
        let error = skill.command(&json!({"text": "x".repeat(fitting + 1)})).expect_err("one byte too many");
        assert_eq!(error.field, "inputs");
    }
}
