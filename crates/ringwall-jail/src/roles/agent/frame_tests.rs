//! Frames survive any segmentation, and arbitrary bytes are rejected within bounded memory.

use proptest::prelude::*;

use super::*;

fn report<'a>(bytes: &'a [u8], number: u32) -> FromAgent<'a> {
    let visit = VisitId(number);
    match number % 4 {
        0 => FromAgent::Output { visit, from: Outlet::Stderr, bytes },
        1 => FromAgent::NotStarted { visit, errno: 2, tried: "nothing" },
        2 => FromAgent::Exited { visit, ending: Ending::Signalled(9), cpu_microseconds: 7, peak_memory_bytes: 8 },
        _ => FromAgent::Ended { visit },
    }
}

/// Feeds bytes in pieces and passes each complete frame to `heard`.
fn hear(bytes: &[u8], piece: usize, longest: usize, mut heard: impl FnMut(&[u8])) -> Result<(), Disorder> {
    let mut frames = Frames::new(longest);
    for part in bytes.chunks(piece) {
        let mut rest = part;
        while !rest.is_empty() {
            let space = frames.space();
            let count = rest.len().min(space.len());
            space[..count].copy_from_slice(&rest[..count]);
            frames.filled(count);
            rest = &rest[count..];
            while let Some(body) = frames.take()? {
                heard(body);
            }
            assert!(frames.held() <= 4 * (longest + 2 * CHUNK), "{} bytes are allocated", frames.held());
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn frames_survive_any_segmentation(
        parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..CHUNK), 0..8),
        piece in 1_usize..100_000,
    ) {
        let mut said = Vec::new();
        for (number, part) in (0..).zip(&parts) {
            append(&report(part, number), &mut said).unwrap();
        }
        let mut number = 0;
        hear(&said, piece, MAX_REPORT, |body| {
            assert_eq!(read::<FromAgent<'_>>(body), Ok(report(&parts[number as usize], number)));
            number += 1;
        }).unwrap();
        assert_eq!(number as usize, parts.len());
    }

    #[test]
    fn arbitrary_bytes_are_rejected_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..4096), piece in 1_usize..64) {
        for longest in [0, 100, MAX_REPORT] {
            let _ = hear(&bytes, piece, longest, |body| {
                assert!(body.len() <= longest);
                let _ = read::<FromAgent<'_>>(body);
                let _ = read::<ToAgent<'_>>(body);
            });
        }
    }

    #[test]
    fn corrupted_frame_is_rejected_without_panic(number in any::<u32>(), place in any::<usize>(), byte in any::<u8>()) {
        let mut said = Vec::new();
        append(&report(b"some output", number), &mut said).unwrap();
        let place = place % said.len();
        said[place] ^= byte;
        let _ = hear(&said, said.len(), MAX_REPORT, |body| {
            let _ = read::<FromAgent<'_>>(body);
        });
    }
}

#[test]
fn excessive_length_is_rejected_before_allocation() {
    let mut frames = Frames::new(MAX_REPORT);
    let announced = u32::MAX.to_le_bytes();
    frames.space()[..4].copy_from_slice(&announced);
    frames.filled(4);
    assert_eq!(frames.take(), Err(Disorder));
    assert!(frames.held() < 2 * MAX_REPORT);
    frames.space();
    assert!(frames.held() < 4 * MAX_REPORT, "also after the error");
}

#[test]
fn frame_with_trailing_bytes_is_rejected() {
    let mut said = Vec::new();
    append(&FromAgent::Ready { apart: Given::No }, &mut said).unwrap();
    said[0] += 1;
    said.push(0);
    assert!(hear(&said, 100, 100, |body| assert_eq!(read::<FromAgent<'_>>(body), Err(Disorder))).is_ok());
}
