//! Hides the value of a flag in `/proc/PID/cmdline`, which every user of the machine can read.
//!
//! That file shows the memory of the process into which the kernel copied its arguments. Field 48 of
//! `/proc/self/stat` is the address, and a write to `/proc/self/mem` overwrites it without `unsafe`.

use std::fs::{self, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::message::Message;

/// `arg_start` is field 48 of `/proc/PID/stat`. The first field after the program's name is field 3.
const ARG_START: usize = 48 - 3;

/// Overwrites each value of the flag with asterisks. Call it after clap has copied the arguments.
pub(crate) fn mask(flag: &str) -> std::result::Result<(), Message> {
    overwrite(flag).map_err(|error| {
        Message::new(format!("could not hide the value of {flag} in /proc/self/cmdline: {error}"))
            .with_hint("pass the value in the environment variable or the configuration file instead")
    })
}

fn overwrite(flag: &str) -> Result<()> {
    let values = values(&fs::read("/proc/self/cmdline")?, flag);
    if values.is_empty() {
        return Ok(());
    }
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let start = fields.split_whitespace().nth(ARG_START).and_then(|field| field.parse::<u64>().ok());
    let start = start.ok_or_else(|| Error::new(ErrorKind::InvalidData, "/proc/self/stat has no arg_start"))?;
    let memory = OpenOptions::new().write(true).open("/proc/self/mem")?;
    values.into_iter().try_for_each(|value| memory.write_all_at(&vec![b'*'; value.len()], start + value.start as u64))
}

/// The positions of a flag's values in a NUL-separated command line: `FLAG VALUE` or `FLAG=VALUE`.
fn values(command_line: &[u8], flag: &str) -> Vec<Range<usize>> {
    let (mut found, mut start, mut is_value) = (Vec::new(), 0, false);
    for argument in command_line.split(|byte| *byte == 0) {
        let end = start + argument.len();
        match argument.strip_prefix(flag.as_bytes()) {
            _ if is_value => found.push(start..end),
            Some([b'=', value @ ..]) => found.push(end - value.len()..end),
            Some(_) | None => {}
        }
        is_value = !is_value && argument == flag.as_bytes();
        start = end + 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_flag_are_found_in_both_forms() {
        let masked = |line: &str| {
            let mut bytes = line.as_bytes().to_vec();
            values(&bytes.clone(), "--database").into_iter().for_each(|value| bytes[value].fill(b'*'));
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(masked("serve\0--database\0abc\0--listen\0x\0"), "serve\0--database\0***\0--listen\0x\0");
        assert_eq!(masked("--database=abc\0serve\0"), "--database=***\0serve\0");
        assert_eq!(masked("--database=a\0--database\0b\0"), "--database=*\0--database\0*\0");
        assert_eq!(masked("--database\0--database\0c\0"), "--database\0**********\0c\0");
        assert_eq!(masked("--databases\0abc\0--database\0"), "--databases\0abc\0--database\0");
    }
}
