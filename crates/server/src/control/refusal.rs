//! Refusals: what the client is told when the volume store or the core refuses.

use crate::core::order::CoreStopped;
use bywash_protocol::{Refusal, RefusalKind};
use bywash_volume::Error;

impl From<CoreStopped> for Refusal {
    fn from(stopped: CoreStopped) -> Refusal {
        Refusal::new(RefusalKind::Failed, stopped)
    }
}

/// Converts an error of the volume store to a refusal.
pub(crate) fn refusal_from(error: Error) -> Refusal {
    use Error as E;
    let code = match &error {
        E::NoDevice(_) | E::NoVolume(_) | E::VolumeLost { .. } => RefusalKind::Missing,
        E::Exists(_) => RefusalKind::Exists,
        E::Name(_) | E::Mode(_) | E::Size { .. } | E::ThinSize { .. } | E::BlockSize(_) | E::Span(_) => {
            RefusalKind::Unfit
        }
        E::NotThinVolume(_) | E::Snapshot { .. } | E::NotSnapshot(_) | E::OtherOrigin { .. } => {
            RefusalKind::Unfit
        }
        E::Full { .. } | E::Fragmented { .. } | E::PoolLow { .. } => RefusalKind::Full,
        E::Grants { .. } | E::GrantExtents { .. } | E::LimitReached { .. } => RefusalKind::Limit,
        _ => RefusalKind::Failed,
    };
    Refusal::new(code, error)
}
