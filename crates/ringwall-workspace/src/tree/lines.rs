//! Finds the offsets of lines in a file without reading it from the start for each page.
//!
//! For each stride of 256 KiB the cumulative number of newlines is kept, which takes 32 KiB for a
//! file of 1 GiB. To find a line, the counts are searched and one stride is read; counting
//! continues where the last request ended. Counts of the 64 last used files are kept as long as
//! size and times of the file are unchanged. They are hints: the content of a page is always read
//! from the file.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::fs::Stat;

use crate::content::Stamp;
use crate::fs::read::{file_size, read_at};

pub(super) const STRIDE: usize = 256 * 1024;
const MAX_CACHED_FILES: usize = 64;
/// Two changes within one tick of the kernel's clock have the same time. A tick is at most this
/// long.
const TICK: Duration = Duration::from_millis(20);

/// Counts of the last used files.
#[derive(Debug, Default)]
pub(crate) struct LineIndexCache {
    // The last used is at the end.
    cached: Mutex<Vec<CachedCounts>>,
}

type CachedCounts = (Stamp, Arc<Vec<u64>>);

/// Finds lines in an open file.
#[derive(Debug)]
pub(super) struct LineFinder<'a, F> {
    file: &'a F,
    size: u64,
    /// Number of newlines in the first stride, the first two, and so on.
    counts: Arc<Vec<u64>>,
    indexes: &'a LineIndexCache,
    stamp: Stamp,
    caching: Caching,
}

/// Controls whether the counts are cached. A file that changed within the last tick may change again
/// without a new time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caching {
    Allowed,
    TooRecent,
}

impl<'a, F: FileExt> LineFinder<'a, F> {
    pub(super) fn new(file: &'a F, status: &Stat, indexes: &'a LineIndexCache) -> Self {
        let stamp = Stamp::of(status);
        let seconds = Duration::from_secs(u64::try_from(status.st_ctime).unwrap_or_default());
        let changed = UNIX_EPOCH + seconds + Duration::from_nanos(status.st_ctime_nsec);
        let is_old = SystemTime::now().duration_since(changed).is_ok_and(|age| age > TICK);
        let caching = if is_old { Caching::Allowed } else { Caching::TooRecent };
        Self { file, size: file_size(status), counts: indexes.get(&stamp), indexes, stamp, caching }
    }

    /// The offset of a line, counted from 0. `None` if the file has fewer newlines before it.
    pub(super) fn start_of(&mut self, line: u64) -> io::Result<Option<u64>> {
        if line == 0 {
            return Ok(Some(0));
        }
        let known = self.counts.len();
        let found = match self.search(line) {
            // A box that writes through a memory mapping may not change the times. Count again.
            Err(Stale) if known > 0 => {
                self.counts = Arc::default();
                self.search(line)
            }
            found => found,
        };
        if self.counts.len() > known && self.caching == Caching::Allowed {
            self.indexes.insert(self.stamp, Arc::clone(&self.counts));
        }
        match found {
            Ok(found) => found,
            // The file changes faster than it is read.
            Err(Stale) => Ok(None),
        }
    }

    fn search(&mut self, line: u64) -> Result<io::Result<Option<u64>>, Stale> {
        let mut buffer = vec![0; STRIDE];
        loop {
            let stride = self.counts.partition_point(|count| *count < line);
            let offset = stride as u64 * STRIDE as u64;
            let before = stride.checked_sub(1).and_then(|previous| self.counts.get(previous)).copied().unwrap_or(0);
            if offset >= self.size {
                return Ok(Ok(None));
            }
            let bytes = match read_up_to(self.file, &mut buffer, offset, self.size - offset) {
                Ok(bytes) => bytes,
                Err(error) => return Ok(Err(error)),
            };
            let newlines = memchr::memchr_iter(b'\n', bytes);
            if stride < self.counts.len() {
                let wanted = usize::try_from(line - before - 1).unwrap_or(usize::MAX);
                let mut newlines = newlines;
                let position = newlines.nth(wanted).ok_or(Stale)?;
                return Ok(Ok(Some(offset + position as u64 + 1)));
            }
            Arc::make_mut(&mut self.counts).push(before + newlines.count() as u64);
        }
    }
}

/// The counts do not match the file.
struct Stale;

/// Reads until the buffer is full or `rest` bytes are read; less only at the end of the file.
pub(super) fn read_up_to<'b>(
    file: &impl FileExt,
    buffer: &'b mut [u8],
    offset: u64,
    rest: u64,
) -> io::Result<&'b [u8]> {
    let room = usize::try_from(rest).map_or(buffer.len(), |rest| rest.min(buffer.len()));
    read_at(file, &mut buffer[..room], offset)
}

impl LineIndexCache {
    fn get(&self, stamp: &Stamp) -> Arc<Vec<u64>> {
        let mut cached = self.cached.lock();
        let Some(index) = cached.iter().position(|(known, _)| known == stamp) else { return Arc::default() };
        cached[index..].rotate_left(1);
        cached.last().map(|(_, counts)| Arc::clone(counts)).unwrap_or_default()
    }

    fn insert(&self, stamp: Stamp, counts: Arc<Vec<u64>>) {
        let mut cached = self.cached.lock();
        match cached.iter_mut().find(|(known, _)| *known == stamp) {
            Some((_, known)) if known.len() >= counts.len() => {}
            Some((_, known)) => *known = counts,
            None => {
                if cached.len() == MAX_CACHED_FILES {
                    cached.remove(0);
                }
                cached.push((stamp, counts));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::File;

    use super::*;

    /// Sums up the bytes that are read from the file.
    struct Counted(File, Cell<usize>);

    impl FileExt for Counted {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let count = self.0.read_at(buffer, offset)?;
            self.1.set(self.1.get() + count);
            Ok(count)
        }

        fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    #[test]
    fn counted_strides_are_not_read_again() {
        const STRIDES: usize = 12;
        let indexes = LineIndexCache::default();
        let (file, status) = file("123", STRIDES * STRIDE / 4, 10);
        let file = Counted(file, Cell::new(0));
        let read = |line: usize| {
            file.1.set(0);
            let start = LineFinder::new(&file, &status, &indexes).start_of(line as u64).unwrap();
            assert_eq!(start, Some(4 * line as u64));
            file.1.get().div_ceil(STRIDE)
        };
        let lines = STRIDE / 4;
        // All strides up to the line are counted, then the line's own stride is read.
        assert_eq!(read(10 * lines + 5), 12);
        // Known lines need their own stride only; a line beyond the counted part needs more.
        assert_eq!([read(10 * lines + 7), read(3 * lines + 1), read(1), read(11 * lines + 1)], [1, 1, 1, 2]);
    }

    /// A file of `count` equal lines, with a status as if it had changed `seconds` ago.
    fn file(line: &str, count: usize, seconds: i64) -> (File, Stat) {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(format!("{line}\n").repeat(count).as_bytes(), 0).unwrap();
        let mut status = rustix::fs::fstat(&file).unwrap();
        status.st_ctime -= seconds;
        (file, status)
    }

    fn cached(indexes: &LineIndexCache) -> usize {
        indexes.cached.lock().len()
    }

    #[test]
    fn changed_file_is_counted_again() {
        let indexes = LineIndexCache::default();
        let (file, status) = file("123", 300_000, 10);
        let start = |status: &Stat| LineFinder::new(&file, status, &indexes).start_of(250_000).unwrap();
        assert_eq!(start(&status), Some(1_000_000));
        assert_eq!((start(&status), cached(&indexes)), (Some(1_000_000), 1), "found by the cached counts");
        // Same size as the status says, other lines, and a new change time.
        file.write_all_at("1\n".repeat(600_000).as_bytes(), 0).unwrap();
        let mut changed = status;
        changed.st_ctime += 1;
        assert_eq!((start(&changed), cached(&indexes)), (Some(500_000), 2));
        // As through a memory mapping: other lines without a new time.
        file.write_all_at("12345678901\n".repeat(100_000).as_bytes(), 0).unwrap();
        assert_eq!(start(&changed), None, "the file has only 100,000 lines now");
    }

    #[test]
    fn counts_of_just_changed_file_are_not_cached() {
        let indexes = LineIndexCache::default();
        // In the future, because the current tick may be over before the check.
        let (file, status) = file("123", 300_000, -10);
        assert_eq!(LineFinder::new(&file, &status, &indexes).start_of(2).unwrap(), Some(8));
        assert_eq!(cached(&indexes), 0);
    }

    #[test]
    fn cache_keeps_last_used_files() {
        let indexes = LineIndexCache::default();
        let (file, status) = file("123", 10, 10);
        let mut ask = |inode: usize| {
            let mut status = status;
            status.st_ino = inode as u64;
            LineFinder::new(&file, &status, &indexes).start_of(2).unwrap();
        };
        (0..MAX_CACHED_FILES).for_each(&mut ask);
        ask(0);
        ask(MAX_CACHED_FILES);
        let cached: Vec<u64> = indexes.cached.lock().iter().map(|(stamp, _)| stamp.inode).collect();
        assert_eq!(cached.len(), MAX_CACHED_FILES);
        assert!(cached.contains(&0) && !cached.contains(&1), "{cached:?}");
    }
}
