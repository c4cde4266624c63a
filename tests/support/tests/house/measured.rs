//! Every published table names the machine that it was measured on, and lies in the folder of that machine's maker.

use crate::root;
use std::fs;
use std::path::{Path, PathBuf};

/// Folder of each maker, and the word by which `bywash bench` names its processors.
const MAKERS: [(&str, &str); 2] = [("amd", "AMD"), ("intel", "Intel")];

fn measured() -> PathBuf {
    root().join("docs/measured")
}

fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).map(|entries| entries.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let pages = entries.iter().map(|entry| entry.path());
    pages.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

#[test]
fn a_page_names_its_machine() {
    let mut known = 0;
    for (folder, maker) in MAKERS {
        for page in pages(&measured().join(folder)) {
            let text = fs::read_to_string(&page).expect("a page");
            let machine = text.lines().find_map(|line| line.strip_prefix("Measured on "));
            let machine =
                machine.unwrap_or_else(|| panic!("{} does not say 'Measured on ...'", page.display()));
            assert!(machine.starts_with(maker), "{} was measured on {machine}", page.display());
            known += 1;
        }
    }
    assert!(known > 0, "no page is published");
}

#[test]
fn the_index_links_to_every_page_and_to_no_other() {
    let index = fs::read_to_string(measured().join("README.md")).expect("docs/measured/README.md");
    assert_eq!(pages(&measured()).len(), 1, "pages lie in the folder of their machine's maker");
    for (folder, _) in MAKERS {
        for page in pages(&measured().join(folder)) {
            let link = format!("({folder}/{})", page.file_name().expect("a name").display());
            assert!(index.contains(&link), "docs/measured/README.md has no link to {link}");
        }
        let begin = format!("({folder}/");
        for name in index.split(&begin).skip(1).filter_map(|rest| rest.split(')').next()) {
            assert!(measured().join(folder).join(name).is_file(), "{folder}/{name} is not there");
        }
    }
}
