//! The archive that a kernel unpacks into its initial file system, in cpio's "new" format.
//!
//! ```text
//!   a file:   "070701", 13 fields of 8 hexadecimal digits | name, 0 | zeros up to 4 | contents | zeros up to 4
//!   the end:  the same with the name TRAILER!!!
//! ```
//!
//! Source: the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.

/// An archive that is being written.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    files: u32,
}

/// Modes of inode(7): an executable regular file, a folder, a symbolic link, a character device.
const PROGRAM: u32 = 0o100_755;
const FOLDER: u32 = 0o040_755;
const LINK: u32 = 0o120_777;
const CONSOLE: u32 = 0o020_600;

impl Archive {
    /// Makes an empty archive.
    pub fn new() -> Archive {
        Archive::default()
    }

    /// Adds an executable file. Its folder must have been added before.
    pub fn program(&mut self, name: &str, contents: &[u8]) {
        self.entry(name, PROGRAM, (0, 0), contents);
    }

    /// Adds a folder.
    pub fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER, (0, 0), &[]);
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, name: &str, target: &str) {
        self.entry(name, LINK, (0, 0), target.as_bytes());
    }

    /// Adds the console device, which is the first program's standard input and output.
    pub fn console(&mut self, name: &str) {
        self.entry(name, CONSOLE, (5, 1), &[]);
    }

    /// Ends the archive and returns its bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), contents: &[u8]) {
        self.files += 1;
        let bytes = u32::try_from(contents.len()).expect("a file of a small system");
        let name_bytes = u32::try_from(name.len() + 1).expect("a name");
        // Inode, mode, owner, group, links, time, size, its device, the device it stands for, length of the
        // name, checksum.
        let fields = [self.files, mode, 0, 0, 1, 0, bytes, 0, 0, device.0, device.1, name_bytes, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.fill_up();
        self.bytes.extend_from_slice(contents);
        self.fill_up();
    }

    fn fill_up(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn golden_archive() {
        let mut archive = Archive::new();
        archive.program("init", b"hello");
        let bytes = archive.finish();
        let head = "070701000000010000\
                    81ed000000000000000000000001000000000000000500000000000000000000000000000000\
                    0000000500000000init\0\0hello\0\0\x00070701";
        assert_eq!(&bytes[..head.len()], head.as_bytes());
        assert!(bytes.len().is_multiple_of(4) && bytes.ends_with(b"TRAILER!!!\0\0\0\0"));
    }
}
