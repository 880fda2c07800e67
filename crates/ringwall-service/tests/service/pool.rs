//! Pool settings as callers observe them: warm boxes, kept boxes and replaced boxes.

use std::time::Duration;

use ringwall_risk::Locale;
use ringwall_service::{CodeRan, CodeRequest, Language, OnBusy};
use serde_json::json;

use crate::fixture::{Fixture, in_fixture, seen};

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

async fn run(fixture: &Fixture, request: CodeRequest) -> CodeRan {
    let begun = fixture.service.begin_code(&fixture.owner, request).await.unwrap();
    let ran = fixture.service.finish_code(&fixture.owner, begun, Locale::English).await.unwrap();
    assert!(ran.success, "{ran:?}");
    ran
}

async fn warm_wait(fixture: &Fixture, count: u32) {
    let is_so = async || {
        let warm_boxes = fixture.service.pool().warm_boxes;
        ((warm_boxes.idle, warm_boxes.warming) == (count, 0)).then_some(())
    };
    seen(&format!("a pool with {count} boxes made ahead"), is_so).await;
}

/// Requires root; otherwise there are no warm boxes.
pub fn first_run_takes_warm_box() {
    in_fixture(async |fixture| {
        warm_wait(fixture, 2).await;
        assert_eq!(run(fixture, python("s", "print(1)", None)).await.stdout, "1\n");
        let warm_boxes = fixture.service.pool().warm_boxes;
        assert_eq!((warm_boxes.hits, warm_boxes.misses), (1, 0), "{warm_boxes:?}");
        // Changing the default limits replaces the warm boxes.
        let limits = json!({ "memory_mb": 256 });
        fixture
            .set(json!({ "pool": { "min_instances": 1, "idle_timeout_s": 1 }, "sandbox": { "limits": limits } }))
            .await;
        warm_wait(fixture, 1).await;
        assert_eq!(run(fixture, python("s", "print(2)", None)).await.stdout, "2\n");
        let warm_boxes = fixture.service.pool().warm_boxes;
        assert_eq!((warm_boxes.hits, warm_boxes.misses), (2, 0), "{warm_boxes:?}");
        fixture.set(json!({ "pool": { "min_instances": 0 } })).await;
        warm_wait(fixture, 0).await;
        fixture.set(json!({ "pool": { "min_instances": null } })).await;
        warm_wait(fixture, 2).await;
    });
}

/// Prints whether `/tmp/mark` exists and creates it. A box's `/tmp` exists as long as the box.
const MARK: &str = "from pathlib import Path\nmark = Path('/tmp/mark')\nprint(mark.exists())\nmark.touch()";

pub fn session_box_is_replaced_after_use_limit_and_idle_time() {
    in_fixture(async |fixture| {
        fixture.set(json!({ "sessions": { "confirmation": "auto-approve" } })).await;
        fixture.set(json!({ "pool": { "min_instances": 0, "max_use_count": 2 } })).await;
        let mut found = Vec::new();
        for _ in 0..5 {
            found.push(run(fixture, python("s", MARK, Some("aio"))).await.stdout);
        }
        assert_eq!(found, ["False\n", "True\n", "False\n", "True\n", "False\n"]);
        assert_eq!(fixture.service.pool().total, 1);
        fixture.set(json!({ "pool": { "idle_timeout_s": 1 } })).await;
        let is_gone = async || (fixture.service.pool().total == 0).then_some(());
        seen("the end of a box that nobody uses", is_gone).await;
        assert_eq!(run(fixture, python("s", MARK, Some("aio"))).await.stdout, "False\n");
        fixture.service.drain(Duration::ZERO).await;
    });
}
