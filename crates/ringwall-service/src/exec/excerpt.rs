//! Shortens a refused request for the record: about 4 KiB, and the SHA-256 of the whole command.
//!
//! Otherwise a caller could fill the database with refused requests at no cost. Commands that ran,
//! or that a person was asked about, are recorded whole.

use ringwall_record::{Digest, NewExec, Start};
use serde_json::json;

/// Most bytes of `cmd`, `args`, `cwd` and `env_keys` together, as JSON.
const MAX_EXCERPT: usize = 4096;
/// Most bytes of each of `cmd`, `cwd`, all `env_keys` and `conversation_id`. The reason's message
/// may have twice as many.
const MAX_PART: usize = 768;
/// The bytes that JSON adds to a string in a list.
const QUOTES_AND_COMMA: usize = 3;

/// Cuts a refused request down to its excerpt. If something was cut,
/// `policy_snapshot.denied.request` says so, with the size and SHA-256 of the whole command: `cmd`
/// and each of `args`, each followed by a NUL byte.
pub(crate) fn shorten_refused(exec: &mut NewExec) {
    let whole: Vec<u8> =
        std::iter::once(&exec.cmd).chain(&exec.args).flat_map(|word| word.bytes().chain(std::iter::once(0))).collect();
    let mut is_cut = cut(&mut exec.cmd, MAX_PART);
    is_cut |= cut(&mut exec.cwd, MAX_PART);
    is_cut |= cut_list(&mut exec.env_keys, MAX_PART);
    is_cut |= exec.conversation_id.as_mut().is_some_and(|id| cut(id, MAX_PART));
    let kept = [&exec.cmd, &exec.cwd].into_iter().chain(&exec.env_keys).map(|text| cost(text)).sum();
    is_cut |= cut_list(&mut exec.args, MAX_EXCERPT.saturating_sub(kept));
    if let Start::Denied(reason) = &mut exec.start {
        cut(&mut reason.message, 2 * MAX_PART);
    }
    if is_cut {
        exec.policy_snapshot["denied"]["request"] =
            json!({ "truncated": true, "size": whole.len(), "sha256": Digest::of(&whole) });
    }
}

/// Keeps strings while they fit. The first that does not fit is cut and ends the list. Returns
/// whether it cut.
fn cut_list(list: &mut Vec<String>, mut room: usize) -> bool {
    for place in 0..list.len() {
        if room < QUOTES_AND_COMMA {
            list.truncate(place);
            return true;
        }
        if cut(&mut list[place], room) {
            list.truncate(place + 1);
            return true;
        }
        room -= cost(&list[place]);
    }
    false
}

/// Cuts a string to at most `room` bytes as JSON. Returns whether it cut.
fn cut(text: &mut String, room: usize) -> bool {
    let mut taken = QUOTES_AND_COMMA;
    let end = text.char_indices().find(|(_, character)| {
        taken += escaped(*character);
        taken > room
    });
    let end = end.map(|(place, _)| place);
    if let Some(end) = end {
        text.truncate(end);
    }
    end.is_some()
}

fn cost(text: &str) -> usize {
    QUOTES_AND_COMMA + text.chars().map(escaped).sum::<usize>()
}

/// The bytes of a character in JSON, at most.
fn escaped(character: char) -> usize {
    match character {
        '"' | '\\' => 2,
        control if control < ' ' => 6,
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use ringwall_record::{Reason, Timestamp};

    use super::*;

    fn refused(cmd: &str, args: &[&str]) -> NewExec {
        NewExec {
            exec_id: "e_0123456789abcdef".parse().unwrap(),
            user_id: "u".parse().unwrap(),
            agent_id: "a".parse().unwrap(),
            caller: "t".to_owned(),
            from: json!({}),
            idempotency: None,
            project_id: "p".to_owned(),
            task_id: None,
            conversation_id: None,
            skill_id: None,
            backend: "native".to_owned(),
            image: None,
            cmd: cmd.to_owned(),
            args: args.iter().map(|word| (*word).to_owned()).collect(),
            cwd: "work".to_owned(),
            env_keys: vec!["PATH".to_owned()],
            policy_snapshot: json!({ "denied": { "code": "x" } }),
            artifacts_path: String::new(),
            created_at: Timestamp::from_milliseconds(1),
            start: Start::Denied(Reason { code: "POLICY_DENIED".to_owned(), message: "no".to_owned() }),
        }
    }

    fn stored(exec: &NewExec) -> usize {
        json!([exec.cmd, exec.args, exec.cwd, exec.env_keys, exec.conversation_id]).to_string().len()
    }

    #[test]
    fn small_request_stays_whole() {
        let mut exec = refused("bash", &["-lc", "rm -rf /"]);
        shorten_refused(&mut exec);
        assert_eq!((exec.cmd.as_str(), exec.args), ("bash", vec!["-lc".to_owned(), "rm -rf /".to_owned()]));
        assert_eq!(exec.policy_snapshot, json!({ "denied": { "code": "x" } }));
    }

    #[test]
    fn large_code_becomes_excerpt_with_size_and_digest() {
        let code = "é".repeat(500_000);
        let mut exec = refused("python", &["-c", &code]);
        shorten_refused(&mut exec);
        assert!(code.starts_with(&exec.args[1]) && exec.args[1].len() > 3000, "{}", exec.args[1].len());
        let whole = format!("python\0-c\0{code}\0");
        let request = json!({ "truncated": true, "size": whole.len(), "sha256": Digest::of(whole.as_bytes()) });
        assert_eq!(exec.policy_snapshot, json!({ "denied": { "code": "x", "request": request } }));
    }

    #[test]
    fn every_large_part_is_bounded() {
        let large = "\0".repeat(100_000);
        let empty = vec![""; 100_000];
        let mut cases = vec![refused(&large, &[]), refused("x", &[&large, &large]), refused("x", &empty)];
        cases.push(NewExec { cwd: large.clone(), ..refused(&large, &[&large]) });
        cases.push(NewExec { env_keys: vec![large.clone(); 9], ..refused("x", &[]) });
        cases.push(NewExec { conversation_id: Some(large.clone()), ..refused("x", &[]) });
        let reason = Reason { code: "POLICY_DENIED".to_owned(), message: large.clone() };
        cases.push(NewExec { start: Start::Denied(reason), ..refused(&large, &[]) });
        for mut exec in cases {
            shorten_refused(&mut exec);
            assert!(stored(&exec) <= MAX_EXCERPT + MAX_PART + 16, "{}", stored(&exec));
            assert_eq!(exec.policy_snapshot["denied"]["request"]["truncated"], true);
            let Start::Denied(reason) = exec.start else { panic!("not refused") };
            assert!(reason.message.len() <= 2 * MAX_PART);
        }
    }
}
