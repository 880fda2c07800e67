//! The window on a real Chromium and on pages of our own, honest and hostile.
//!
//! One Chromium and one server serve nearly all trials, one after the other: each begins by going to a page of its own. Those
//! that end a browser, or pretend to be one, have theirs.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed assumption is a failed trial")]

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::lab::Lab;

mod acting;
mod documents;
mod endings;
mod fields;
mod files;
mod hostile;
mod lab;
mod looking;
mod pages;
mod server;
mod travelling;

type Run = fn(Arc<Lab>) -> Pin<Box<dyn Future<Output = ()>>>;

/// A trial's name and its function, with the future boxed.
macro_rules! trials {
    ($($module:ident :: { $($name:ident),* $(,)? })*) => {
        &[$($((concat!(stringify!($module), "::", stringify!($name)), |lab| Box::pin($module::$name(lab))),)*)*]
    };
}

const TRIALS: &[(&str, Run)] = trials! {
    travelling::{
        the_answer_says_where_the_page_is, a_redirection_is_followed, what_cannot_be_opened_says_why,
        a_server_that_never_answers_costs_the_limit, a_page_that_never_ends_is_shown_as_far_as_it_came, back_goes_back,
        a_popup_is_followed_and_its_end_too, nothing_can_be_left_without_a_way_back,
    }
    acting::{
        a_form_is_filled_and_sent, a_click_finds_text, keys_and_chords_are_pressed, what_cannot_be_clicked_says_why,
        a_list_says_what_it_has, a_frame_of_the_same_site_is_part_of_the_page, scrolling_moves_the_page,
        waiting_ends_when_it_is_there,
    }
    looking::{
        an_outline_can_be_acted_on, frames_of_other_sites_are_named, references_end, text_and_markup_are_read, pictures_have_their_extent,
        a_page_becomes_a_document, scripts_have_values, strange_values_harm_nobody,
    }
    fields::{
        fields_say_what_they_are_for, another_kind_than_expected_is_not_typed_into, a_list_of_another_kind_is_not_chosen_in,
        a_field_that_is_swapped_is_caught, a_page_cannot_lie_about_its_fields, a_foreign_frame_counts_as_payment,
    }
    documents::{
        what_was_asked_about_one_document_is_not_done_to_another, a_page_that_closed_is_not_acted_on,
        a_document_says_where_it_is, what_leads_elsewhere_is_done,
    }
    files::{
        a_download_is_whole, what_a_page_downloads_by_itself_stops_nothing, an_address_is_saved_even_if_it_could_be_shown, a_hostile_name_is_no_path, a_file_is_uploaded,
    }
    hostile::{
        dialogs_are_answered_and_told, endless_dialogs_end, endless_scripts_end, a_crash_is_told_and_a_fresh_page_works,
        a_huge_page_is_cut, a_page_cannot_open_files, windows_without_end_are_closed, half_a_character_ends_nothing,
    }
    endings::{ a_killed_browser_is_gone, a_closed_browser_ends, no_stream_can_do_more_than_fail }
};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They share a page.
    arguments.test_threads = Some(1);
    let runtime = Arc::new(tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap());
    let lab = if arguments.list { None } else { Some(Arc::new(runtime.block_on(Lab::new()))) };
    let trials = TRIALS.iter().map(|(name, run)| {
        let (runtime, lab) = (Arc::clone(&runtime), lab.clone());
        Trial::test(*name, move || {
            let lab = lab.ok_or_else(|| Failed::from("there is no browser"))?;
            runtime.block_on(run(lab));
            Ok(())
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
