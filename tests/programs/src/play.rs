//! Runs of a scenario on both sides, and the comparison of their transcripts.

use crate::place::{FileSystemKind, Folder};
use crate::seed::Seed;
use crate::stage::{ScenarioRun, Side};

/// Runs `scenario` by the kernel and then with the library, both in the same folder of `place`.
///
/// # Panics
/// If the transcripts differ, or if the library was not loaded or served nothing where the scenario requires
/// that.
pub fn compare(place: FileSystemKind, scenario: fn(&ScenarioRun)) {
    let top = Folder::new(place);
    let seed = Seed::from_environment();
    let kernel = play(Side::Kernel, &top, &seed, scenario);
    let bywash = play(Side::Bywash, &top, &seed, scenario);
    let _replay = Replay { seed: seed.value(), stage: &bywash };
    if let Some(difference) = difference(&kernel.transcript(), &bywash.transcript()) {
        panic!("the kernel and bywash differ:\n{difference}");
    }
    bywash.assert_counted();
}

fn play(side: Side, top: &Folder, seed: &Seed, scenario: fn(&ScenarioRun)) -> ScenarioRun {
    let stage = ScenarioRun::set_up(side, top, seed.clone());
    let replay = Replay { seed: seed.value(), stage: &stage };
    scenario(&stage);
    drop(replay);
    stage
}

/// Returns the first line that differs, with the lines around it.
fn difference(kernel: &[String], bywash: &[String]) -> Option<String> {
    let (kernel, bywash) = (kernel.join("\n"), bywash.join("\n"));
    let (kernel, bywash): (Vec<&str>, Vec<&str>) = (kernel.lines().collect(), bywash.lines().collect());
    let same = kernel.iter().zip(&bywash).take_while(|(one, other)| one == other).count();
    if same == kernel.len() && same == bywash.len() {
        return None;
    }
    let before = kernel[same.saturating_sub(CONTEXT)..same].iter().map(|line| format!("  {line}\n"));
    let after = |mark: &str, lines: &[&str]| {
        let shown = lines.iter().skip(same).take(CONTEXT);
        shown.map(|line| format!("{mark} {line}\n")).collect::<String>()
    };
    Some(format!("{}{}{}", before.collect::<String>(), after("kernel:", &kernel), after("bywash:", &bywash)))
}

/// Number of lines shown on each side of a difference.
const CONTEXT: usize = 8;

/// Prints, when dropped by a panic, how to repeat the failing run.
struct Replay<'stage> {
    seed: u64,
    stage: &'stage ScenarioRun,
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        eprintln!(
            "failed on the side of {:?}; again with:\n  BYWASH_TEST_SEED={} BYWASH_TEST_KEEP=1 cargo test -p \
             bywash-programs --test {} -- --exact {test}\nthe last program was:\n  {}",
            self.stage.side(),
            self.seed,
            test_binary(),
            self.stage.last_command()
        );
    }
}

/// Returns cargo's name of this test binary: the file name without the hash.
fn test_binary() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    name.rsplit_once('-').map_or(name.to_string(), |(name, _hash)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn a_difference_is_shown_with_its_surroundings() {
        let [kernel, bywash] = [["one", "two", "three"], ["one", "2", "three"]].map(|x| x.map(str::to_owned));
        assert_eq!(difference(&kernel, &kernel), None);
        let shown = difference(&kernel, &bywash).unwrap();
        assert!(shown.starts_with("  one\nkernel: two\n") && shown.contains("bywash: 2\n"), "{shown}");
        assert!(difference(&kernel, &bywash[..1]).is_some());
    }
}
