//! The program in Rust of the repository's README.md, compiled as it is printed and run against a receiver.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

/// Runs the lines of README.md with another path than theirs.
fn ship(name: &str) -> Result<(), Box<dyn Error>> {
    use bywash::container::{Options, Path};

    let path = Path::connect(name, &Options::new())?;
    let mut frame = path.alloc(1 << 20)?; // fill it: a container is a slice of bytes
    frame.fill(7);
    path.ship(frame)?;
    Ok(())
}

#[test]
fn the_program_of_the_readme_works() -> Result<(), Box<dyn Error>> {
    use bywash::container::{Listener, Options};

    let folder = tempfile::tempdir()?;
    let name = folder.path().join("viewer");
    let listener = Listener::bind(&name)?;
    let there = name.to_string_lossy().into_owned();
    let sender = std::thread::spawn(move || ship(&there).map_err(|error| error.to_string()));
    let path = listener.accept(&Options::new())?;
    assert_eq!(path.receive()?.to_vec()?, vec![7; 1 << 20]);
    sender.join().expect("a sender that does not panic")?;

    // The lines above are those that are printed.
    let page = fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../README.md"))?;
    let program =
        page.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap_or_default();
    let this = include_str!("readme.rs").replace("(name, ", "(\"/run/viewer\", ");
    let this: Vec<&str> = this.lines().map(str::trim).collect();
    assert!(program.lines().count() > 4, "{page}");
    for line in program.lines() {
        assert!(this.contains(&line.trim()), "README.md shows a line that this program lacks: {line}");
    }
    Ok(())
}
