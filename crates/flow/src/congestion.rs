//! Congestion control of a QUIC sender, as the user names it.

use std::fmt;

/// Algorithm that decides how much a sender has in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Congestion {
    /// `cubic`: reacts to loss; for networks that lose packets only when they are full.
    #[default]
    Cubic,
    /// `bbr`: measures the rate that arrives; for networks that lose packets at any rate, such as radio.
    Bbr,
}

impl Congestion {
    /// Names of all algorithms.
    pub(crate) const NAMES: &[&str] = &["cubic", "bbr"];

    const ALL: [Congestion; 2] = [Congestion::Cubic, Congestion::Bbr];

    /// Returns the algorithm of this name.
    ///
    /// # Errors
    /// A message with the names, if no algorithm has this one.
    pub(crate) fn named(name: &str) -> Result<Congestion, String> {
        let mut known = Congestion::ALL.into_iter();
        known
            .find(|congestion| congestion.to_string() == name)
            .ok_or_else(|| format!("'{name}' is not known: there are {}", Congestion::NAMES.join(" and ")))
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Congestion::Cubic => "cubic",
            Congestion::Bbr => "bbr",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_that_of_one_algorithm() {
        assert_eq!(Congestion::ALL.map(|known| known.to_string()), Congestion::NAMES);
        assert_eq!(Congestion::named("bbr"), Ok(Congestion::Bbr));
        assert!(Congestion::named("reno").unwrap_err().contains("cubic and bbr"));
    }
}
