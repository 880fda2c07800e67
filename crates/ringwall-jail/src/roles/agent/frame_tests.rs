//! Frames survive any segmentation, and arbitrary bytes are rejected within bounded memory.

use proptest::prelude::*;

use super::*;

fn report<'a>(bytes: &'a [u8], number: u32) -> FromAgent<'a> {
    let process = ProcessId(number);
    match number % 4 {
        0 => FromAgent::Output { process, from: OutputStream::Stderr, bytes },
        1 => FromAgent::NotStarted { process, errno: 2, tried: "nothing" },
        2 => FromAgent::Exited { process, ending: Ending::Signalled(9), cpu_microseconds: 7, peak_memory_bytes: 8 },
        _ => FromAgent::Ended { process },
    }
}

/// Feeds bytes in pieces and passes each complete frame to `heard`.
fn feed(bytes: &[u8], chunk_len: usize, max_len: usize, mut on_frame: impl FnMut(&[u8])) -> Result<(), FrameError> {
    let mut frames = FrameReader::new(max_len);
    for part in bytes.chunks(chunk_len) {
        let mut rest = part;
        while !rest.is_empty() {
            let space = frames.space();
            let count = rest.len().min(space.len());
            space[..count].copy_from_slice(&rest[..count]);
            frames.filled(count);
            rest = &rest[count..];
            while let Some(body) = frames.take()? {
                on_frame(body);
            }
            assert!(frames.held() <= 4 * (max_len + 2 * CHUNK), "{} bytes are allocated", frames.held());
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn frames_survive_any_segmentation(
        parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..CHUNK), 0..8),
        chunk_len in 1_usize..100_000,
    ) {
        let mut outgoing = Vec::new();
        for (number, part) in (0..).zip(&parts) {
            append(&report(part, number), &mut outgoing).unwrap();
        }
        let mut number = 0;
        feed(&outgoing, chunk_len, MAX_FROM_AGENT, |body| {
            assert_eq!(read::<FromAgent<'_>>(body), Ok(report(&parts[number as usize], number)));
            number += 1;
        }).unwrap();
        assert_eq!(number as usize, parts.len());
    }

    #[test]
    fn arbitrary_bytes_are_rejected_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..4096), chunk_len in 1_usize..64) {
        for max_len in [0, 100, MAX_FROM_AGENT] {
            let _ = feed(&bytes, chunk_len, max_len, |body| {
                assert!(body.len() <= max_len);
                let _ = read::<FromAgent<'_>>(body);
                let _ = read::<ToAgent<'_>>(body);
            });
        }
    }

    #[test]
    fn corrupted_frame_is_rejected_without_panic(number in any::<u32>(), position in any::<usize>(), byte in any::<u8>()) {
        let mut outgoing = Vec::new();
        append(&report(b"some output", number), &mut outgoing).unwrap();
        let position = position % outgoing.len();
        outgoing[position] ^= byte;
        let _ = feed(&outgoing, outgoing.len(), MAX_FROM_AGENT, |body| {
            let _ = read::<FromAgent<'_>>(body);
        });
    }
}

#[test]
fn excessive_length_is_rejected_before_allocation() {
    let mut frames = FrameReader::new(MAX_FROM_AGENT);
    let announced = u32::MAX.to_le_bytes();
    frames.space()[..4].copy_from_slice(&announced);
    frames.filled(4);
    assert_eq!(frames.take(), Err(FrameError));
    assert!(frames.held() < 2 * MAX_FROM_AGENT);
    frames.space();
    assert!(frames.held() < 4 * MAX_FROM_AGENT, "also after the error");
}

#[test]
fn frame_with_trailing_bytes_is_rejected() {
    let mut outgoing = Vec::new();
    append(&FromAgent::Ready { isolated: Enabled::No }, &mut outgoing).unwrap();
    outgoing[0] += 1;
    outgoing.push(0);
    assert!(feed(&outgoing, 100, 100, |body| assert_eq!(read::<FromAgent<'_>>(body), Err(FrameError))).is_ok());
}
