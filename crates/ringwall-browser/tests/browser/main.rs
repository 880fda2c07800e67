//! Tests with a real Chromium and our own pages, ordinary and hostile.
//!
//! One Chromium and one server serve nearly all tests, one after another; each test starts by
//! opening a page of its own. Tests that end a browser, or replace it, use their own.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed assumption fails the test")]

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::fixture::Fixture;

mod disconnect;
mod documents;
mod fields;
mod files;
mod fixture;
mod hostile;
mod input;
mod navigation;
mod pages;
mod reading;
mod server;

type Run = fn(Arc<Fixture>) -> Pin<Box<dyn Future<Output = ()>>>;

/// Names and functions of tests, with the future boxed.
macro_rules! tests {
    ($($module:ident :: { $($name:ident),* $(,)? })*) => {
        &[$($((concat!(stringify!($module), "::", stringify!($name)), |fixture| Box::pin($module::$name(fixture))),)*)*]
    };
}

const TESTS: &[(&str, Run)] = tests! {
    navigation::{
        answer_has_url_title_and_status, redirect_is_followed, unreachable_url_fails_with_reason,
        silent_server_fails_after_time_limit, unfinished_page_is_shown_as_not_loaded, back_opens_previous_page,
        popup_becomes_current_page_until_closed, back_without_history_fails,
    }
    input::{
        form_is_filled_and_sent, click_finds_element_by_text, keys_with_and_without_modifiers_are_pressed,
        unclickable_element_fails_with_reason, unknown_option_fails_and_lists_options,
        same_site_frame_is_part_of_page, scroll_moves_page, wait_ends_when_condition_holds,
    }
    reading::{
        outline_references_can_be_acted_on, foreign_frames_are_listed_in_outline, outdated_reference_is_refused,
        text_and_html_are_read, screenshot_has_requested_extent, page_is_printed_as_pdf,
        script_returns_value_or_fails, large_or_cyclic_script_value_fails,
    }
    fields::{
        field_kind_follows_type_attributes_and_labels, fill_of_unexpected_kind_is_refused,
        select_of_unexpected_kind_is_refused, field_that_changes_kind_is_refused,
        page_cannot_hide_kind_of_field, foreign_frame_counts_as_payment,
    }
    documents::{
        action_for_replaced_document_is_refused, action_for_closed_or_hidden_page_is_refused,
        page_cannot_change_document_url, action_that_navigates_succeeds,
    }
    files::{
        download_is_complete, downloads_of_page_do_not_affect_requested_download,
        url_download_saves_displayable_content, hostile_download_name_is_no_path, file_is_uploaded,
    }
    hostile::{
        dialogs_are_answered_and_reported, endless_dialogs_are_terminated, endless_script_is_terminated,
        crash_is_reported_and_next_page_works, huge_page_is_truncated, page_cannot_open_local_files,
        endless_popups_are_closed, unpaired_surrogate_keeps_browser_alive,
    }
    disconnect::{
        killed_browser_fails_actions, close_ends_browser, invalid_stream_fails_connect,
    }
};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The tests share a page.
    arguments.test_threads = Some(1);
    let runtime = Arc::new(tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap());
    let fixture = if arguments.list { None } else { Some(Arc::new(runtime.block_on(Fixture::new()))) };
    let tests = TESTS.iter().map(|(name, run)| {
        let (runtime, fixture) = (Arc::clone(&runtime), fixture.clone());
        Trial::test(*name, move || {
            let fixture = fixture.ok_or_else(|| Failed::from("there is no browser"))?;
            runtime.block_on(run(fixture));
            Ok(())
        })
    });
    libtest_mimic::run(&arguments, tests.collect()).exit_code()
}
