//! Assesses browser actions: `{"action":…,"params":{…}}`, a list of them, or lines of the form
//! `action argument`.

use std::sync::LazyLock;

use serde_json::Value;

use super::findings::Findings;
use super::level::Level::{High, Low, Medium};
use super::rule::{Index, Rule};

/// Names of fields for passwords and other credentials. The browser gets this list and
/// [`PAYMENT_FIELDS`] too, so that it judges a field by the same names. A single word of up to four
/// ASCII letters matches a whole word only, because such words are parts of many others; any other
/// matches a part of a word. Several words match consecutive words, also joined, from the start of
/// a word.
pub const PASSWORD_FIELDS: [&str; 22] = [
    "password",
    "passwd",
    "passwort",
    "kennwort",
    "contrase",
    "mot de passe",
    "senha",
    "pwd",
    "passphrase",
    "passcode",
    "pass code",
    "secret",
    "token",
    "otp",
    "pin",
    "2fa",
    "mfa",
    "密码",
    "密碼",
    "口令",
    "パスワード",
    "비밀번호",
];
/// Names of fields for a payment.
pub const PAYMENT_FIELDS: [&str; 23] = [
    "card",
    "card num",
    "card no",
    "credit card",
    "cc num",
    "cc no",
    "cc exp",
    "kreditkarte",
    "kartennummer",
    "cvv",
    "cvc",
    "cvn",
    "csc",
    "cvv2",
    "cvc2",
    "security code",
    "iban",
    "ssn",
    "payment",
    "expiry",
    "卡号",
    "卡號",
    "安全码",
];
/// An ASCII name of up to this many letters matches whole words only.
const SHORT: usize = 4;

pub(crate) static RULES: &[Rule] = &[
    Rule::new("web.navigate", Low, "Opens a page.", "打开网页。", "").shown_by(
        &[
            r#"{"action":"navigate","params":{"url":"https://example.com"}}"#,
            "navigate https://example.com",
            "about:blank",
        ],
        &[r#"{"action":"close"}"#, r#"{"action":"navigate","params":{"url":"file:///x"}}"#],
    ),
    Rule::new("web.read", Low, "Reads or operates the page.", "读取或操作网页。", "").shown_by(
        &[
            r#"{"action":"get_content"}"#,
            r#"{"action":"screenshot"}"#,
            r##"{"action":"click","params":{"selector":"#a"}}"##,
            r##"{"action":"wait_for","params":{"selector":"#a"}}"##,
            r##"{"action":"download","params":{"selector":"#a"}}"##,
            r#"{"action":"pdf"}"#,
        ],
        &[r#"{"action":"evaluate"}"#, r#"{"action":"download","params":{"url":"file:///x"}}"#],
    ),
    Rule::new("web.fill", Medium, "Types into a field.", "在网页中输入内容。", "").shown_by(
        &[r##"{"action":"fill","params":{"selector":"#q","value":"x"}}"##],
        &[r#"{"action":"fill","params":{"selector":"input[name=password]"}}"#],
    ),
    Rule::new(
        "web.fill.secret",
        High,
        "Types into a field for a password or a payment.",
        "在密码或支付字段中输入内容。",
        "",
    )
    .shown_by(
        &[
            r#"{"action":"fill","params":{"selector":"input[type=password]","value":"x"}}"#,
            r##"{"action":"type","params":{"selector":"#card-number"}}"##,
            r##"{"action":"fill","params":{"selector":"#userPin"}}"##,
            r##"{"action":"fill","params":{"selector":"#ccnumber"}}"##,
            r##"{"action":"select","params":{"selector":"[name=ccExpMonth]"}}"##,
        ],
        &[
            r##"{"action":"fill","params":{"selector":"#spinner"}}"##,
            r##"{"action":"fill","params":{"selector":"#discard-number"}}"##,
            r##"{"action":"fill","params":{"selector":"#q","value":"my password"}}"##,
        ],
    ),
    Rule::new("web.evaluate", High, "Runs a script in the page.", "在网页中执行脚本。", "").shown_by(
        &[
            r#"{"action":"evaluate","params":{"script":"1"}}"#,
            r#"{"action":"navigate","params":{"url":"javascript:alert(1)"}}"#,
        ],
        &[r#"{"action":"get_content"}"#],
    ),
    Rule::new(
        "web.file",
        High,
        "Opens a local file or an internal page of the browser.",
        "打开本地文件或浏览器内部页面。",
        "",
    )
    .shown_by(
        &[r#"{"action":"navigate","params":{"url":"file:///etc/passwd"}}"#, "navigate View-Source:FILE:///x"],
        &["navigate https://x/file:///y"],
    ),
    Rule::new("web.private", High, "Opens an address that is not public.", "打开非公网地址。", "").shown_by(
        &[
            "navigate http://127.0.0.1:8080/",
            "navigate http://169.254.169.254/latest",
            "navigate http://localhost/",
            "navigate http://[::1]/",
        ],
        &["navigate https://example.com/127.0.0.1", "navigate https://8.8.8.8/"],
    ),
    Rule::new("web.unknown", Medium, "Is an unknown browser action.", "未知的浏览器操作。", "")
        .shown_by(&[r#"{"action":"teleport"}"#, "{", ""], &[r#"{"action":"close"}"#]),
    Rule::new(
        "web.too_complex",
        High,
        "Is too large or too complex to be assessed.",
        "内容过大或过于复杂，无法判断。",
        "",
    ),
];
pub(crate) static INDEX: LazyLock<Index> = LazyLock::new(|| Index::new(RULES));

pub(crate) fn inspect(text: &str, findings: &mut Findings) {
    match serde_json::from_str(text) {
        Ok(Value::Array(actions)) => {
            // The index in the list is reported as the line.
            for (at, action) in actions.iter().enumerate() {
                inspect_action(action, at + 1, findings);
            }
        }
        Ok(action) => inspect_action(&action, 1, findings),
        Err(_) if text.trim().is_empty() => findings.add_by_id(&INDEX, "web.unknown", 1),
        Err(_) => {
            for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                let (action, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
                let (action, rest) =
                    if action.contains(':') { ("navigate", line.trim()) } else { (action, rest.trim()) };
                findings.add_by_id(&INDEX, judge(action, rest, rest), at + 1);
            }
        }
    }
}

fn inspect_action(action: &Value, line: usize, findings: &mut Findings) {
    let word = |name: &str| action["params"][name].as_str().or_else(|| action[name].as_str()).unwrap_or_default();
    let kind = action["action"].as_str().unwrap_or_default();
    // All texts that may identify the field.
    let field = ["selector", "field", "name", "label", "type", "element", "placeholder"].map(word).join(" ");
    findings.add_by_id(&INDEX, judge(kind, word("url"), &field), line);
}

fn judge(action: &str, url: &str, field: &str) -> &'static str {
    match action.to_ascii_lowercase().as_str() {
        "navigate" | "goto" | "open" | "new_tab" => judge_url(url),
        "download" if !url.is_empty() => judge_url(url),
        "get_content" | "content" | "screenshot" | "click" | "scroll" | "wait" | "wait_for" | "back" | "forward"
        | "reload" | "hover" | "close" | "get_text" | "get_html" | "extract" | "snapshot" | "download" | "pdf" => {
            "web.read"
        }
        "fill" | "type" | "press" | "select" | "input" | "upload" => {
            if is_secret(field) {
                "web.fill.secret"
            } else {
                "web.fill"
            }
        }
        "evaluate" | "eval" | "execute_script" | "run_script" | "add_script" => "web.evaluate",
        _ => "web.unknown",
    }
}

fn is_secret(field: &str) -> bool {
    let words = words(field);
    PASSWORD_FIELDS.iter().chain(&PAYMENT_FIELDS).any(|name| is_named(&words, name))
}

/// Lower-case words. `cardNumber` is two words, like `card-number`.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for character in text.chars() {
        if !character.is_alphanumeric() || (was_small && character.is_uppercase()) {
            words.push(String::new());
        }
        was_small = character.is_lowercase();
        if let (true, Some(word)) = (character.is_alphanumeric(), words.last_mut()) {
            word.extend(character.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn is_named(words: &[String], name: &str) -> bool {
    match name.contains(' ') {
        true => {
            let together = name.replace(' ', "");
            (0..words.len()).any(|first| begin_with(&words[first..], &together))
        }
        false if name.is_ascii() && name.len() <= SHORT => words.iter().any(|word| word == name),
        false => words.iter().any(|word| word.contains(name)),
    }
}

/// True if the joined words start with `beginning`.
fn begin_with(words: &[String], mut beginning: &str) -> bool {
    for word in words {
        match beginning.strip_prefix(word.as_str()) {
            Some("") => return true,
            Some(rest) => beginning = rest,
            None => return word.starts_with(beginning),
        }
    }
    false
}

fn judge_url(url: &str) -> &'static str {
    let plain: String = url.chars().filter(|one| !one.is_control() && !one.is_whitespace()).collect();
    let lower = plain.to_ascii_lowercase();
    let lower = lower.trim_start_matches("view-source:");
    let Some((scheme, rest)) = lower.split_once(':') else { return "web.navigate" };
    match scheme {
        "http" | "https" => {
            let authority =
                rest.trim_start_matches(['/', '\\']).split(['/', '?', '#', '\\']).next().unwrap_or_default();
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            if is_private(host) { "web.private" } else { "web.navigate" }
        }
        "about" => "web.navigate",
        "javascript" | "data" | "vbscript" => "web.evaluate",
        _ => "web.file",
    }
}

fn is_private(host: &str) -> bool {
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(host, _)| host),
    };
    if let Ok(address) = host.parse::<core::net::Ipv6Addr>() {
        let inner = address.to_ipv4_mapped().is_some_and(|address| is_private_v4(address.octets()));
        return inner
            || address.is_loopback()
            || address.is_unspecified()
            || address.segments()[0] & 0xfe00 == 0xfc00
            || address.segments()[0] & 0xffc0 == 0xfe80;
    }
    let host = host.trim_end_matches('.');
    let is_name = host == "localhost" || [".localhost", ".local", ".internal"].iter().any(|end| host.ends_with(end));
    // A number is an address too: 2130706433 and 0x7f.1 are 127.0.0.1.
    let is_number =
        !host.is_empty() && host.split('.').all(|part| part.starts_with("0x") || part.parse::<u64>().is_ok());
    match host.parse::<core::net::Ipv4Addr>() {
        Ok(address) => is_private_v4(address.octets()),
        Err(_) => is_name || is_number,
    }
}

fn is_private_v4(octets: [u8; 4]) -> bool {
    matches!(
        octets,
        [0 | 10 | 127, ..]
            | [169, 254, ..]
            | [192, 168, ..]
            | [172, 16..=31, ..]
            | [100, 64..=127, ..]
            | [224..=255, ..]
    )
}
