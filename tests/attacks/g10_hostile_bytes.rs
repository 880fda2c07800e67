//! Attack g10: a box prints an endless line, invalid UTF-8 and terminal escapes. Our JSON and
//! messages must escape them; output that is passed through is unchanged.

use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "g10", title: "endless line, invalid UTF-8, terminal escapes", run };

const WRITE: &str = r"
out = sys.stdout.buffer
out.write(b'\x1b]0;renamed\x07\x1b[2J\x9b31m\x1b]52;c;cm0gLXJm\x07')
out.write(b'\xff\xfe\xc3\x28\xed\xa0\x80\xf4\x90\x80\x80\x00')
out.write('\u202e\u2028 \ud7ff'.encode())
out.write(b'{0:1}' * 100)
out.flush()
sys.stderr.buffer.write(b'\x1b[8m\xff')
";

const LONG_LINE: &str = "head -c 67108864 /dev/zero | tr '\\0' 'a'; printf '\\377'";

fn run(context: &Context) -> Verdict {
    let payload = Payload::new(WRITE);
    let outside = context.bare(&payload.arguments())?;
    control(outside.stdout.contains(&0x1b) && String::from_utf8(outside.stdout.clone()).is_err(), || {
        outside.describe()
    })?;

    let passed = context.boxed().run_payload(&payload)?;
    held(passed.stdout == outside.stdout && passed.stderr == outside.stderr, || {
        format!("altered on the way: {}", passed.describe())
    })?;
    if context.is_served() {
        return ask_server(context, &payload);
    }
    let report = context.boxed().report_payload(&payload)?;
    let raw = &report.outcome.stdout;
    let inert =
        |bytes: &[u8]| !bytes.iter().any(|byte| *byte < 0x20 && *byte != b'\n' && *byte != b'\t' && *byte != b'\r');
    held(std::str::from_utf8(raw).is_ok() && inert(raw), || format!("control bytes in the JSON: {raw:?}"))?;
    held(inert(&report.outcome.stderr), || format!("control bytes beside the JSON: {:?}", report.outcome.stderr))?;
    held(report.number("/stdout_bytes") == Some(outside.stdout.len() as u64), || report.summary())?;

    let long = context.boxed().report(&["/bin/sh", "-c", LONG_LINE])?;
    held(long.value["exit_code"] == 0 && long.is_set("stdout_truncated"), || long.summary())?;
    held(long.number("/stdout_bytes") == Some((64 << 20) + 1), || long.summary())?;

    // Our messages must escape any command name.
    let named = context.boxed().run(&["/nonexistent/\u{1b}]0;renamed\u{7}\u{1b}[2J\u{9b}31m"])?;
    held(named.code() == Some(127), || format!("an unknown command: {}", named.describe()))?;
    held(inert(&named.stderr) && inert(&named.stdout), || format!("escapes in a message: {:?}", named.errors()))?;
    let missing = context.boxed().option("--workspace", "/nonexistent/\u{1b}[2J").run(&["/bin/true"])?;
    held(missing.code() == Some(2) && inert(&missing.stderr), || format!("a bad workspace: {}", missing.describe()))?;
    Ok(format!(
        "unchanged when passed through, inert in JSON and messages; 64 MiB line kept {} bytes",
        long.stdout().len()
    ))
}

/// The raw bytes of the server, because the suite's client would parse and format the JSON again.
fn ask_server(context: &Context, payload: &Payload) -> Verdict {
    let server = context.server()?;
    let inert = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok_and(|text| !text.contains(is_control));
    let mut looked = 0;
    let long = context.boxed().report(&["/bin/sh", "-c", LONG_LINE])?;
    held(long.value["exit_code"] == 0 && long.is_set("stdout_truncated"), || long.summary())?;
    context.boxed().run_payload(payload)?;
    let newest = server.ask("GET", "/sandbox/execs?limit=1", None).expect(200)[0]["exec_id"].clone();
    let base = format!("/sandbox/execs/{}", newest.as_str().unwrap_or_default());
    for part in ["", "/stdout", "/stderr", "/observation", "/artifacts", "/events"] {
        let answer = server.ask("GET", &format!("{base}{part}"), None);
        control(answer.status == 200 && !answer.bytes.is_empty(), || format!("{part}: {}", answer.status))?;
        held(inert(&answer.bytes), || format!("control bytes in {part}: {:?}", answer.bytes))?;
        looked += 1;
    }
    let kept = server.ask("GET", &format!("{base}/artifacts/stdout.txt"), None).bytes;
    control(kept.contains(&0x1b), || "the artifact does not have the bytes as they were".into())?;
    Ok(format!("unchanged as an artifact, inert in {looked} answers of the server; a 64 MiB line is cut"))
}

fn is_control(letter: char) -> bool {
    letter.is_ascii_control() && !matches!(letter, '\n' | '\t' | '\r')
}
