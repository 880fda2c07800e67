//! ZIP archives built byte by byte, with contents that no ordinary tool writes.

use std::io::Write;

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
pub(crate) const STORED: u16 = 0;
pub(crate) const DEFLATED: u16 = 8;
/// Flag: the name is UTF-8.
const UTF8: u16 = 1 << 11;
pub(crate) const ENCRYPTED: u16 = 1;
/// Flag: sizes and checksum follow the data.
pub(crate) const DESCRIPTOR: u16 = 1 << 3;

/// An entry: the values of its headers and its data.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) flags: u16,
    pub(crate) method: u16,
    pub(crate) mode: u32,
    pub(crate) crc: u32,
    /// The declared unpacked size.
    pub(crate) size: u32,
    /// The data in the archive.
    pub(crate) packed: Vec<u8>,
    /// Declares another offset than that of its data.
    pub(crate) offset: Option<u32>,
}

impl Entry {
    /// A regular file without compression.
    pub(crate) fn file(name: &str, content: &[u8]) -> Self {
        let mut crc = Crc::new();
        crc.update(content);
        Self {
            name: name.as_bytes().to_vec(),
            flags: UTF8,
            method: STORED,
            mode: 0o100_644,
            crc: crc.sum(),
            size: u32::try_from(content.len()).unwrap(),
            packed: content.to_vec(),
            offset: None,
        }
    }

    pub(crate) fn directory(name: &str) -> Self {
        Self { mode: 0o040_755, ..Self::file(name, b"") }
    }

    pub(crate) fn link(name: &str, target: &str) -> Self {
        Self { mode: 0o120_777, ..Self::file(name, target.as_bytes()) }
    }

    pub(crate) fn deflated(name: &str, content: &[u8]) -> Self {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(content).unwrap();
        Self { method: DEFLATED, packed: encoder.finish().unwrap(), ..Self::file(name, content) }
    }

    /// Sets the raw name and clears the UTF-8 flag.
    pub(crate) fn named(self, name: &[u8]) -> Self {
        Self { name: name.to_vec(), flags: self.flags & !UTF8, ..self }
    }

    fn head(&self) -> Vec<u8> {
        let mut head = Vec::new();
        for word in [self.flags, self.method, 0, 0x21] {
            head.extend(word.to_le_bytes());
        }
        let packed = u32::try_from(self.packed.len()).unwrap();
        for number in [self.crc, packed, self.size] {
            head.extend(number.to_le_bytes());
        }
        head.extend(u16::try_from(self.name.len()).unwrap().to_le_bytes());
        head.extend(0_u16.to_le_bytes());
        head
    }
}

/// An archive of these entries.
pub(crate) fn zip(entries: &[Entry]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let offset = entry.offset.unwrap_or_else(|| u32::try_from(bytes.len()).unwrap());
        if entry.offset.is_none() {
            bytes.extend(LOCAL.to_le_bytes());
            bytes.extend(20_u16.to_le_bytes());
            bytes.extend(entry.head());
            bytes.extend(&entry.name);
            bytes.extend(&entry.packed);
        }
        directory.extend(CENTRAL.to_le_bytes());
        // "Version made by" is Unix, so that the mode is used.
        directory.extend((3_u16 << 8 | 20).to_le_bytes());
        directory.extend(20_u16.to_le_bytes());
        directory.extend(entry.head());
        directory.extend([0; 6]);
        directory.extend((entry.mode << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(&entry.name);
    }
    let count = u16::try_from(entries.len()).unwrap();
    let (start, length) = (u32::try_from(bytes.len()).unwrap(), u32::try_from(directory.len()).unwrap());
    bytes.extend(directory);
    bytes.extend(END.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(count.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend([0; 2]);
    bytes
}

/// A valid archive of these files.
pub(crate) fn of(files: &[(&str, &str)]) -> Vec<u8> {
    zip(&files.iter().map(|(name, content)| Entry::deflated(name, content.as_bytes())).collect::<Vec<_>>())
}

/// A valid skill with `SKILL.md` and `main.py`.
pub(crate) fn skill(name: &str, content: &str) -> Vec<u8> {
    let about = format!("---\nname: {name}\ndescription: about {name}\n---\n");
    of(&[(&format!("{name}/SKILL.md"), &about), (&format!("{name}/main.py"), content)])
}
