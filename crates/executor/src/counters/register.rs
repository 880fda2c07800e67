//! Registration of descriptors with the runtime while the user's epoll watches are used up.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const ENOSPC: i32 = 28;
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// The guard looks ten times a second, and ending a box that holds millions of watches takes the kernel seconds. Its
/// watches come back one by one meanwhile, so one of the next attempts succeeds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Has the runtime watch a descriptor: `wrap` is a constructor like `TcpStream::from_std`, which closes its descriptor
/// when it fails. ENOSPC means that processes of this user hold `fs.epoll.max_user_watches` watches; the attempt is
/// repeated with a duplicate, so that the connection or pipe is not lost while the guard ends the box that holds them.
pub async fn register<T>(descriptor: OwnedFd, wrap: impl Fn(OwnedFd) -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        // Without a free descriptor for the duplicate there is one attempt.
        let Ok(duplicate) = descriptor.try_clone() else { return wrap(descriptor) };
        match wrap(duplicate) {
            Err(error) if error.raw_os_error() == Some(ENOSPC) && Instant::now() < deadline => {
                tokio::time::sleep(PAUSE).await;
            }
            registered => return registered,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn full_counter_is_retried_without_losing_the_pipe() {
        let attempts = Cell::new(0);
        let (read, write) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&write, b"x").unwrap();
        let registered = register(read, |read| {
            attempts.set(attempts.get() + 1);
            if attempts.get() < 4 { Err(io::Error::from_raw_os_error(ENOSPC)) } else { Ok(read) }
        });
        let registered = registered.await.unwrap();
        assert_eq!(attempts.get(), 4);
        assert_eq!(rustix::io::read(&registered, &mut [0; 1]), Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn other_errors_are_returned_at_once() {
        let attempts = Cell::new(0);
        let (read, _write) = rustix::pipe::pipe().unwrap();
        let failed = register(read, |_| -> io::Result<()> {
            attempts.set(attempts.get() + 1);
            Err(io::Error::from_raw_os_error(1))
        });
        assert_eq!(failed.await.unwrap_err().raw_os_error(), Some(1));
        assert_eq!(attempts.get(), 1);
    }
}
