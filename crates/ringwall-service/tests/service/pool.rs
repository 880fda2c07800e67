//! Pool settings as callers observe them: warm boxes, kept boxes and replaced boxes.

use std::time::Duration;

use ringwall_risk::Locale;
use ringwall_service::{CodeRan, CodeRequest, Language, OnBusy};
use serde_json::json;

use crate::lab::{Lab, in_lab, seen};

fn python(session: &str, code: &str, backend: Option<&str>) -> CodeRequest {
    CodeRequest {
        session_id: session.to_owned(),
        user_id: None,
        agent_id: None,
        code: code.to_owned(),
        language: Language::Python,
        timeout_s: None,
        backend: backend.map(str::to_owned),
        max_memory_mb: None,
        max_output_bytes: None,
        files: Vec::new(),
        context_id: None,
        on_busy: OnBusy::Wait,
    }
}

async fn run(lab: &Lab, request: CodeRequest) -> CodeRan {
    let begun = lab.service.begin_code(&lab.owner, request).await.unwrap();
    let ran = lab.service.finish_code(&lab.owner, begun, Locale::English).await.unwrap();
    assert!(ran.success, "{ran:?}");
    ran
}

async fn spares_wait(lab: &Lab, count: u32) {
    let is_so = async || {
        let spares = lab.service.pool().spares;
        ((spares.idle, spares.warming) == (count, 0)).then_some(())
    };
    seen(&format!("a pool with {count} boxes made ahead"), is_so).await;
}

/// Requires root; otherwise there are no warm boxes.
pub fn the_first_run_finds_a_box_that_was_made_ahead() {
    in_lab(async |lab| {
        spares_wait(lab, 2).await;
        assert_eq!(run(lab, python("s", "print(1)", None)).await.stdout, "1\n");
        let spares = lab.service.pool().spares;
        assert_eq!((spares.hits, spares.misses), (1, 0), "{spares:?}");
        // Changing the default limits replaces the warm boxes.
        let limits = json!({ "memory_mb": 256 });
        lab.set(json!({ "pool": { "min_instances": 1, "idle_timeout_s": 1 }, "sandbox": { "limits": limits } })).await;
        spares_wait(lab, 1).await;
        assert_eq!(run(lab, python("s", "print(2)", None)).await.stdout, "2\n");
        let spares = lab.service.pool().spares;
        assert_eq!((spares.hits, spares.misses), (2, 0), "{spares:?}");
        lab.set(json!({ "pool": { "min_instances": 0 } })).await;
        spares_wait(lab, 0).await;
        lab.set(json!({ "pool": { "min_instances": null } })).await;
        spares_wait(lab, 2).await;
    });
}

/// Prints whether `/tmp/mark` exists and creates it. A box's `/tmp` exists as long as the box.
const MARK: &str = "from pathlib import Path\nmark = Path('/tmp/mark')\nprint(mark.exists())\nmark.touch()";

pub fn a_sessions_box_is_replaced_after_its_last_use_and_when_it_was_idle() {
    in_lab(async |lab| {
        lab.set(json!({ "sessions": { "confirmation": "auto-approve" } })).await;
        lab.set(json!({ "pool": { "min_instances": 0, "max_use_count": 2 } })).await;
        let mut found = Vec::new();
        for _ in 0..5 {
            found.push(run(lab, python("s", MARK, Some("aio"))).await.stdout);
        }
        assert_eq!(found, ["False\n", "True\n", "False\n", "True\n", "False\n"]);
        assert_eq!(lab.service.pool().total, 1);
        lab.set(json!({ "pool": { "idle_timeout_s": 1 } })).await;
        let is_gone = async || (lab.service.pool().total == 0).then_some(());
        seen("the end of a box that nobody uses", is_gone).await;
        assert_eq!(run(lab, python("s", MARK, Some("aio"))).await.stdout, "False\n");
        lab.service.drain(Duration::ZERO).await;
    });
}
