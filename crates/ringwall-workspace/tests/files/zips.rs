//! Creates ZIPs byte by byte, with contents that no tool would write.

use std::io::{Cursor, Write};

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

pub const UTF8: u16 = 1 << 11;
pub const DESCRIPTOR: u16 = 1 << 3;
pub const ENCRYPTED: u16 = 1;

/// One entry with the values of its headers.
#[derive(Clone)]
pub struct Part {
    pub name: Vec<u8>,
    /// The name in the local header, if it differs.
    pub local_name: Option<Vec<u8>>,
    pub data: Vec<u8>,
    pub flags: u16,
    pub method: u16,
    /// File type and permissions of Unix.
    pub mode: u32,
    pub crc: u32,
    pub size: u32,
    /// Bytes after the data.
    pub after: Vec<u8>,
    /// The offset of the local header, if the declared one differs.
    pub offset: Option<u32>,
}

pub fn file(name: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Part {
    let data = data.as_ref().to_vec();
    Part {
        name: name.as_ref().to_vec(),
        local_name: None,
        flags: 0,
        method: 0,
        mode: 0o100_644,
        crc: crc32(&data),
        size: u32::try_from(data.len()).unwrap(),
        after: Vec::new(),
        offset: None,
        data,
    }
}

pub fn folder(name: &str) -> Part {
    Part { mode: 0o040_755, ..file(name, "") }
}

/// A skill with two files.
pub fn skill(name: &str, text: &str) -> Vec<Part> {
    vec![file(format!("{name}/SKILL.md"), text), file(format!("{name}/main.py"), "print(1)\n")]
}

impl Part {
    /// Moves sizes and checksum from the local header to a data descriptor.
    pub fn described_after(mut self, after: impl FnOnce(u32, u32) -> Vec<u8>) -> Self {
        self.flags |= DESCRIPTOR;
        self.after = after(self.crc, self.size);
        self
    }

    fn local(&self) -> Vec<u8> {
        let name = self.local_name.as_ref().unwrap_or(&self.name);
        let late = self.flags & DESCRIPTOR != 0;
        let declared = |value: u32| if late { 0 } else { value };
        let mut bytes = b"PK\x03\x04\x14\x00".to_vec();
        bytes.extend(self.flags.to_le_bytes());
        bytes.extend(self.method.to_le_bytes());
        bytes.extend([0, 0, 0x21, 0]);
        bytes.extend(declared(self.crc).to_le_bytes());
        bytes.extend(declared(u32::try_from(self.data.len()).unwrap()).to_le_bytes());
        bytes.extend(declared(self.size).to_le_bytes());
        bytes.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend(name);
        bytes.extend(&self.data);
        bytes.extend(&self.after);
        bytes
    }

    fn central(&self, offset: u32) -> Vec<u8> {
        let mut bytes = b"PK\x01\x02\x14\x03\x14\x00".to_vec();
        bytes.extend(self.flags.to_le_bytes());
        bytes.extend(self.method.to_le_bytes());
        bytes.extend([0, 0, 0x21, 0]);
        bytes.extend(self.crc.to_le_bytes());
        bytes.extend(u32::try_from(self.data.len()).unwrap().to_le_bytes());
        bytes.extend(self.size.to_le_bytes());
        bytes.extend(u16::try_from(self.name.len()).unwrap().to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend((self.mode << 16).to_le_bytes());
        bytes.extend(self.offset.unwrap_or(offset).to_le_bytes());
        bytes.extend(&self.name);
        bytes
    }
}

pub fn zip(parts: &[Part]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut directory = Vec::new();
    for part in parts {
        directory.extend(part.central(u32::try_from(bytes.len()).unwrap()));
        bytes.extend(part.local());
    }
    finish(bytes, &directory, u16::try_from(parts.len()).unwrap(), b"")
}

/// Appends a central directory and the end record.
pub fn finish(mut bytes: Vec<u8>, directory: &[u8], count: u16, comment: &[u8]) -> Vec<u8> {
    let start = u32::try_from(bytes.len()).unwrap();
    bytes.extend(directory);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend(count.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend(u32::try_from(directory.len()).unwrap().to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend(u16::try_from(comment.len()).unwrap().to_le_bytes());
    bytes.extend(comment);
    bytes
}

/// A valid, compressed ZIP.
pub fn deflated(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, data) in files {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(data).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

pub fn crc32(data: &[u8]) -> u32 {
    !data.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}
