//! Shell quoting, for commands in messages to the user.

use std::borrow::Cow;
use std::path::Path;

/// Quotes a word for the shell, if it needs quotes.
pub fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+:,=@%".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")).into(),
    }
}

/// Quotes a path for a shell command, and protects a leading dash from being taken for an option. Bytes that
/// are not UTF-8 are replaced.
pub fn quoted_path(path: &Path) -> String {
    let text = path.to_string_lossy();
    let prefix = if text.starts_with('-') { "./" } else { "" };
    quoted(&format!("{prefix}{text}")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_word_back() {
        for word in ["", "a", "a b", "it's", "$HOME", "/x/y.z", "~", "a\\b", "é*"] {
            let echoed = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", quoted(word))])
                .output();
            assert_eq!(String::from_utf8(echoed.unwrap().stdout).unwrap(), word);
        }
        assert_eq!(quoted("/x/y.z"), "/x/y.z");
        assert_eq!(quoted_path(Path::new("-a b")), "'./-a b'");
    }
}
