//! Names of containers: `ringwall-` and the exec's id, so that `docker ps` shows which exec a
//! container belongs to.

use std::fmt;

use crate::error::Error;

const PREFIX: &str = "ringwall-";
const MAX_EXEC_ID: usize = 64;

/// A name that docker accepts and that cannot be mistaken for an option.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ContainerName(String);

impl ContainerName {
    pub(crate) fn of_exec(exec_id: &str) -> Result<Self, Error> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if exec_id.is_empty() || exec_id.len() > MAX_EXEC_ID || !exec_id.bytes().all(is_plain) {
            return Err(Error::ExecIdMalformed(exec_id.chars().take(MAX_EXEC_ID).collect()));
        }
        Ok(ContainerName(format!("{PREFIX}{exec_id}")))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn exec_id(&self) -> &str {
        self.0.strip_prefix(PREFIX).unwrap_or_default()
    }
}

impl fmt::Display for ContainerName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_its_exec_and_nothing_that_docker_would_read_otherwise() {
        let name = ContainerName::of_exec("e_0123456789abcdef").unwrap();
        assert_eq!((name.as_str(), name.exec_id()), ("ringwall-e_0123456789abcdef", "e_0123456789abcdef"));
        for bad in ["", "a b", "a/b", "a,b", "ä", "a\n", &"x".repeat(65)] {
            assert!(matches!(ContainerName::of_exec(bad), Err(Error::ExecIdMalformed(_))), "{bad:?}");
        }
    }
}
