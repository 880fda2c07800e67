//! Random ids and secrets.

use rustix::rand::GetRandomFlags;

use crate::error::Error;

/// Returns `BYTES` random bytes from the kernel as lower-case hexadecimal digits.
pub(crate) fn random_digits<const BYTES: usize>() -> Result<String, Error> {
    let mut bytes = [0; BYTES];
    let count = rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty()));
    match count {
        Ok(count) if count == BYTES => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        // `getrandom` returns up to 256 bytes completely. Fewer bytes would make a token guessable.
        Ok(_) => Err(Error::Runtime { message: "could not get enough random numbers".to_owned() }),
        Err(errno) => Err(Error::runtime("get random numbers from the kernel", &errno)),
    }
}
