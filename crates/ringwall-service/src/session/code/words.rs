//! Phrases the outcome of code for the client, in English or Chinese.

use ringwall_record::Reason;
use ringwall_risk::Locale;

use super::confirm::AUTO_REJECTED;
use crate::approvals::{APPROVAL_EXPIRED, DENIED_BY_PERSON};
use crate::error::codes::OOM;
use crate::exec::view::ExecView;

/// `None` if the code succeeded.
pub(super) fn error_of(view: &ExecView, locale: Locale) -> Option<String> {
    match (&view.error_reason, view.summary.exit_code) {
        (Some(reason), _) => Some(result(reason, locale)),
        (None, Some(0)) => None,
        (None, Some(code)) => Some(match locale {
            Locale::English => format!("It exited with code {code}."),
            Locale::Chinese => format!("退出码为 {code}。"),
        }),
        (None, None) => Some(match locale {
            Locale::English => "It has no exit code.".to_owned(),
            Locale::Chinese => "没有退出码。".to_owned(),
        }),
    }
}

/// Denials without an approval use the same phrase.
pub(super) fn refused(sentence: &str, locale: Locale) -> String {
    match locale {
        Locale::English => format!("Execution refused: {sentence}"),
        Locale::Chinese => format!("执行被拒绝: {sentence}"),
    }
}

fn result(reason: &Reason, locale: Locale) -> String {
    let Reason { code, message } = reason;
    // A person's own explanation is not translated.
    let said = message.split_once(": ").map(|(_, said)| said);
    match (locale, code.as_str()) {
        (Locale::English, DENIED_BY_PERSON | AUTO_REJECTED | APPROVAL_EXPIRED | "POLICY_DENIED" | "POLICY_CHANGED") => {
            refused(message, locale)
        }
        (Locale::English, _) => message.clone(),
        (Locale::Chinese, DENIED_BY_PERSON) => match said {
            Some(said) => refused(&format!("用户拒绝了确认：{said}"), locale),
            None => refused("用户拒绝了确认。", locale),
        },
        (Locale::Chinese, AUTO_REJECTED) => refused("会话设置为自动拒绝高风险代码。", locale),
        (Locale::Chinese, APPROVAL_EXPIRED) => refused("确认超时，无人答复。", locale),
        (Locale::Chinese, "POLICY_CHANGED") => refused("执行前会话的要求已更改，请重新提交。", locale),
        (Locale::Chinese, "POLICY_DENIED") => refused(message, locale),
        (Locale::Chinese, "TIMEOUT") => format!("执行超时: {message}"),
        (Locale::Chinese, OOM) => format!("内存不足: {message}"),
        (Locale::Chinese, "CANCELLED") => "执行已取消。".to_owned(),
        (Locale::Chinese, _) => message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_in_both_languages() {
        let result = |code: &str, message: &str, locale| {
            result(&Reason { code: code.to_owned(), message: message.to_owned() }, locale)
        };
        for code in [DENIED_BY_PERSON, AUTO_REJECTED, APPROVAL_EXPIRED, "POLICY_DENIED"] {
            assert!(result(code, "x", Locale::English).starts_with("Execution refused: "), "{code}");
            assert!(result(code, "x", Locale::Chinese).starts_with("执行被拒绝: "), "{code}");
        }
        let said = result(DENIED_BY_PERSON, "denied by a person: not today", Locale::Chinese);
        assert_eq!(said, "执行被拒绝: 用户拒绝了确认：not today");
        assert_eq!(result("TIMEOUT", "timed out (limit 1000 ms)", Locale::English), "timed out (limit 1000 ms)");
    }
}
