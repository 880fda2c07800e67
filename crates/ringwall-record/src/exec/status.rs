//! The status of an exec. Its names are the same in the database, the API and the audit chain.

use crate::text_enum::text_enum;

text_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, utoipa::ToSchema)]
    #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
    Status,
    "a status: QUEUED, RUNNING, AWAITING_APPROVAL, SUCCEEDED, FAILED, TIMEOUT, CANCELLED, POLICY_DENIED or LOST",
    Queued = "QUEUED",
    Running = "RUNNING",
    AwaitingApproval = "AWAITING_APPROVAL",
    Succeeded = "SUCCEEDED",
    Failed = "FAILED",
    Timeout = "TIMEOUT",
    Cancelled = "CANCELLED",
    PolicyDenied = "POLICY_DENIED",
    Lost = "LOST",
}

impl Status {
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
