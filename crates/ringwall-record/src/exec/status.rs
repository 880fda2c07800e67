//! The status of an exec. Its names are the same in the database, the API and the audit chain.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, utoipa::ToSchema)]
#[schema(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    Queued,
    Running,
    AwaitingApproval,
    Succeeded,
    Failed,
    Timeout,
    Cancelled,
    PolicyDenied,
    Lost,
}

impl Status {
    pub const ALL: [Self; 9] = [
        Self::Queued,
        Self::Running,
        Self::AwaitingApproval,
        Self::Succeeded,
        Self::Failed,
        Self::Timeout,
        Self::Cancelled,
        Self::PolicyDenied,
        Self::Lost,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Queued => "QUEUED",
            Status::Running => "RUNNING",
            Status::AwaitingApproval => "AWAITING_APPROVAL",
            Status::Succeeded => "SUCCEEDED",
            Status::Failed => "FAILED",
            Status::Timeout => "TIMEOUT",
            Status::Cancelled => "CANCELLED",
            Status::PolicyDenied => "POLICY_DENIED",
            Status::Lost => "LOST",
        }
    }

    /// An ended exec never changes again.
    pub const fn is_ended(self) -> bool {
        match self {
            Status::Queued | Status::Running | Status::AwaitingApproval => false,
            Status::Succeeded
            | Status::Failed
            | Status::Timeout
            | Status::Cancelled
            | Status::PolicyDenied
            | Status::Lost => true,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for Status {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|status| status.as_str() == text);
        found.ok_or(Error::NameMalformed {
            what: "a status: QUEUED, RUNNING, AWAITING_APPROVAL, SUCCEEDED, FAILED, TIMEOUT, CANCELLED, \
                   POLICY_DENIED or LOST",
        })
    }
}

impl serde::Serialize for Status {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The final statuses, so that an outcome cannot have status RUNNING.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FinalStatus {
    Succeeded,
    Failed,
    Timeout,
    Cancelled,
    PolicyDenied,
    Lost,
}

impl From<FinalStatus> for Status {
    fn from(ended: FinalStatus) -> Self {
        match ended {
            FinalStatus::Succeeded => Status::Succeeded,
            FinalStatus::Failed => Status::Failed,
            FinalStatus::Timeout => Status::Timeout,
            FinalStatus::Cancelled => Status::Cancelled,
            FinalStatus::PolicyDenied => Status::PolicyDenied,
            FinalStatus::Lost => Status::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_parsed_as_written_and_published() {
        for status in Status::ALL {
            assert_eq!(status.to_string().parse::<Status>().unwrap(), status);
        }
        assert!("running".parse::<Status>().is_err());
        let published = serde_json::to_value(<Status as utoipa::PartialSchema>::schema()).unwrap();
        assert_eq!(published["enum"], serde_json::json!(Status::ALL));
    }

    #[test]
    fn final_statuses_are_exactly_the_ended_ones() {
        use FinalStatus::*;
        let outcomes = [Succeeded, Failed, Timeout, Cancelled, PolicyDenied, Lost].map(Status::from);
        for status in Status::ALL {
            assert_eq!(outcomes.contains(&status), status.is_ended(), "{status}");
        }
    }
}
