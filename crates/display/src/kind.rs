//! Kinds of displays, and the names of the displays themselves.

use std::fmt;
use std::path::PathBuf;

/// Kind of a display: the protocol that its server speaks, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DisplayKind {
    /// A Wayland compositor, which maps the arena (wl_shm). The display's name is that of its socket, in
    /// `XDG_RUNTIME_DIR` unless it is a path.
    Wayland,
    /// An X server, which attaches the arena for reading (MIT-SHM). The display's name is as in `DISPLAY`, and
    /// the server is on this machine.
    X11,
    /// A screen of a display adapter without a display server (kernel mode setting). The display's name is the path of
    /// the card, such as "/dev/dri/card0"; without a name it is the first one to which a screen is connected.
    Kms,
}

impl DisplayKind {
    /// All kinds, in the order in which [`DisplayKind::detect`] looks for them.
    pub const ALL: [DisplayKind; 3] = [DisplayKind::Wayland, DisplayKind::X11, DisplayKind::Kms];

    /// Finds the kind of the display that the environment names: Wayland by `WAYLAND_DISPLAY`, X11 by `DISPLAY`;
    /// `None` if it names none. It never names [`DisplayKind::Kms`].
    pub fn detect() -> Option<DisplayKind> {
        DisplayKind::ALL.into_iter().find(|kind| kind.named_by_environment().is_some())
    }

    /// Returns the kind of this name; `None` if there is none.
    pub fn named(name: &str) -> Option<DisplayKind> {
        DisplayKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the name of the kind, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            DisplayKind::Wayland => "wayland",
            DisplayKind::X11 => "x11",
            DisplayKind::Kms => "kms",
        }
    }

    /// Returns the variable of the environment that names a display of this kind; `None` for cards.
    pub(crate) fn variable(self) -> Option<&'static str> {
        match self {
            DisplayKind::Wayland => Some("WAYLAND_DISPLAY"),
            DisplayKind::X11 => Some("DISPLAY"),
            DisplayKind::Kms => None,
        }
    }

    /// Returns the name of the display that the environment names.
    pub(crate) fn named_by_environment(self) -> Option<String> {
        std::env::var(self.variable()?).ok().filter(|name| !name.is_empty())
    }
}

impl fmt::Display for DisplayKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

/// Returns the path of a Wayland compositor's socket; `None` if the name is no path, and `XDG_RUNTIME_DIR`, in which
/// the socket lies, is not set.
pub(crate) fn wayland_socket(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(name.into());
    }
    let folder = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty())?;
    Some(PathBuf::from(folder).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names() {
        for kind in DisplayKind::ALL {
            assert_eq!(DisplayKind::named(&kind.to_string()), Some(kind));
        }
        assert_eq!(DisplayKind::named("quartz"), None);
    }

    #[test]
    fn a_path_is_the_socket_itself() {
        assert_eq!(wayland_socket("/run/wayland-7"), Some("/run/wayland-7".into()));
    }
}
