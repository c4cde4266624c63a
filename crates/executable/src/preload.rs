//! The entries of `LD_PRELOAD`: paths and names of libraries, separated by spaces or colons (ld.so(8)).

/// File name of the preloaded library.
pub const LIBRARY: &[u8] = b"libbywash_shim.so";

/// Entries of `value`, in their order.
pub fn entries(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| matches!(byte, b' ' | b':')).filter(|entry| !entry.is_empty())
}

/// Returns true if an entry names the preloaded library, in whatever folder.
pub fn is_library(entry: &[u8]) -> bool {
    file_name(entry) == LIBRARY
}

/// Returns true if `value` names the preloaded library.
pub fn has_library(value: &[u8]) -> bool {
    entries(value).any(is_library)
}

/// Returns true if a library is AddressSanitizer's, as GCC or Clang names it.
pub fn is_address_sanitizer(library: &[u8]) -> bool {
    let name = file_name(library);
    name.starts_with(b"libasan.so") || name.starts_with(b"libclang_rt.asan")
}

/// Writes `value` without the preloaded library to `to`, entries separated by colons, and answers its length;
/// `None` when `to` is too short.
pub fn without_library(value: &[u8], to: &mut [u8]) -> Option<usize> {
    let mut length = 0;
    for entry in entries(value).filter(|entry| !is_library(entry)) {
        let separator = usize::from(length > 0);
        let end = length + separator + entry.len();
        let place = to.get_mut(length..end)?;
        if separator > 0 {
            place[0] = b':';
        }
        place[separator..].copy_from_slice(entry);
        length = end;
    }
    Some(length)
}

pub(crate) fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_goes_and_the_others_stay() {
        let mut to = [0; 32];
        for (before, after) in [
            (&b"/l/libbywash_shim.so"[..], &b""[..]),
            (b"/l/libbywash_shim.so:/a.so", b"/a.so"),
            (b"a.so /l/libbywash_shim.so b.so libbywash_shim.so", b"a.so:b.so"),
            (b"", b""),
        ] {
            let length = without_library(before, &mut to).unwrap();
            assert_eq!(&to[..length], after);
        }
        assert_eq!(without_library(b"/longer/than/the/room/that/there/is.so", &mut to), None);
    }

    #[test]
    fn an_entry_is_known_by_its_file_name() {
        assert!(has_library(b"/a.so:/l/libbywash_shim.so"));
        assert!(!has_library(b"/libbywash_shim.so/a.so:libbywash_shim.so.old"));
        assert!(is_address_sanitizer(b"/usr/lib/libasan.so.8"));
        assert!(is_address_sanitizer(b"libclang_rt.asan-x86_64.so"));
        assert!(!is_address_sanitizer(b"/libasan.so/libubsan.so.1"));
    }
}
