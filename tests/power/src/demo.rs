//! Power cuts of `make demo`: SQLite commits by a log, the power is cut at some moments, and nothing acknowledged is lost. The
//! same without syncs, which must lose commits, shows that the cuts are real.

use crate::campaign::{Campaign, Outcome};
use crate::disk::Format;
use crate::launch::Launch;
use crate::machine::missing;
use crate::workload::sqlite::{Journal, Sqlite};
use std::io;
use std::path::Path;

/// Number of cuts.
const CUTS: usize = 20;
/// Number of transactions of each of the workload's two processes.
const TRANSACTIONS: u64 = 200;

/// Cuts the power under Debian's SQLite with a log of the program `bywash`, and prints what was there afterwards; or why
/// nothing was done.
///
/// # Errors
/// An acknowledged commit is missing, a database is damaged, the cuts lose nothing even of what was never synced, or the disks
/// cannot be made.
pub fn demo(bywash: &Path) -> io::Result<()> {
    if let Some(why) = missing() {
        println!("   left out: {why}");
        return Ok(());
    }
    let sqlite = Sqlite::new(Journal::Wal, Format::Ext4, TRANSACTIONS);
    let logged = cut(Launch::with_commit_log_of(bywash), sqlite)?;
    if let Some(failure) = logged.failure {
        return Err(io::Error::other(failure));
    }
    println!(
        "   {CUTS} cuts among {} requests of the disk, what it had not flushed lost, kept or torn: after each,\n   \
         `bywash log recover` ran, the database was sound, and all acknowledged commits were there, up to {}",
        logged.requests, logged.commits
    );
    let careless = cut(Launch::default(), sqlite.careless())?;
    if careless.failure.is_none() {
        return Err(io::Error::other(
            "the cuts lose nothing even with synchronous=OFF, so they prove nothing",
        ));
    }
    println!(
        "   the same without the log and with synchronous=OFF: acknowledged commits were lost, as they should be"
    );
    Ok(())
}

fn cut(launch: Launch, sqlite: Sqlite) -> io::Result<Outcome> {
    let campaign = Campaign { launch, ..Campaign::from_environment(CUTS) };
    let seed = campaign.seed;
    let failed = |why| io::Error::other(format!("{why} (BYWASH_POWER_SEED={seed})"));
    let outcome = campaign.run(&std::env::current_exe()?, &sqlite).map_err(failed)?;
    Ok(outcome)
}
