//! The scripts of a folder, as one: each module after those that it imports, without what only joins modules.
//!
//! A page that is one file has nothing to import from. So that this stays a matter of lines, a module of the page imports
//! as `import { a, b } from './c.js';` in one line at the top, and exports functions, classes and constants where they
//! are. No two modules have the same name at the top.

use crate::error::Error;
use std::collections::BTreeSet;
use std::iter::once;

/// The module `entry` with all that it needs; `text` reads a module by its name.
///
/// # Errors
/// What cannot be read or is not written as above.
pub fn joined(entry: &str, text: &dyn Fn(&str) -> Result<String, Error>) -> Result<String, Error> {
    let mut joined = Joined { text, taken: BTreeSet::new(), names: BTreeSet::new(), script: String::new() };
    joined.add(entry)?;
    Ok(joined.script)
}

struct Joined<'a> {
    text: &'a dyn Fn(&str) -> Result<String, Error>,
    /// Modules that are there or on their way.
    taken: BTreeSet<String>,
    /// What the modules have at the top.
    names: BTreeSet<String>,
    script: String,
}

impl Joined<'_> {
    /// A module that imports itself by way of others is taken when it is met first: functions may be used before they
    /// stand.
    fn add(&mut self, module: &str) -> Result<(), Error> {
        if !self.taken.insert(module.to_owned()) {
            return Ok(());
        }
        let mut own = String::new();
        for (number, line) in (self.text)(module)?.lines().enumerate() {
            let wrong = |reason| Error::Module { module: module.into(), line: number + 1, reason };
            if line.starts_with("import") {
                let name = imported(line)
                    .ok_or_else(|| wrong("an import is one line like: import { a, b } from './c.js';"))?;
                self.add(name)?;
                continue;
            }
            let kept = line.strip_prefix("export ").unwrap_or(line);
            let declared = declared(kept);
            if kept != line && declared.is_none() {
                return Err(wrong("only functions, classes and constants are exported, where they stand"));
            }
            if declared.is_some_and(|name| !self.names.insert(name.to_owned())) {
                return Err(wrong("another module has this name at the top"));
            }
            own.extend(once(kept).chain(once("\n")));
        }
        self.script.push_str(&own);
        Ok(())
    }
}

/// The name that a line at the top declares.
fn declared(line: &str) -> Option<&str> {
    let kinds = ["function ", "async function ", "class ", "const ", "let "];
    let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
    rest.split(|c: char| !c.is_ascii_alphanumeric() && !"_$".contains(c)).next()
}

fn imported(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("import {")?;
    let (names, from) = rest.split_once("} from './")?;
    let plain = names.chars().all(|c| c.is_ascii_alphanumeric() || " ,_$".contains(c));
    from.strip_suffix("';").filter(|name| plain && !name.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(modules: &'static [(&'static str, &'static str)]) -> Result<String, Error> {
        joined("page.js", &|name| {
            let found = modules.iter().find(|module| module.0 == name);
            found
                .map(|module| module.1.to_owned())
                .ok_or(Error::File { path: name.into(), source: std::io::ErrorKind::NotFound.into() })
        })
    }

    #[test]
    fn what_is_imported_comes_first_and_once() {
        let script = of(&[
            ("page.js", "import { a } from './a.js';\nimport { b, c } from './b.js';\na(b, c);"),
            ("a.js", "import { b } from './b.js';\nexport function a() { return b; }"),
            ("b.js", "export const b = 1;\nexport const c = 2;\n"),
        ]);
        assert_eq!(script.unwrap(), "const b = 1;\nconst c = 2;\nfunction a() { return b; }\na(b, c);\n");
    }

    #[test]
    fn what_is_not_written_so_is_refused_with_its_line() {
        for (module, wanted) in [
            ("let x;\nimport a from './a.js';", "page.js, line 2: an import is"),
            ("import { a as b, default } from 'https://elsewhere/a.js';", "an import is"),
            ("export default 1;", "only functions"),
            ("import { a } from './none.js';", "none.js"),
            ("import { q } from './page.js';\nconst a = 1;\nfunction a() {}", "line 3: another module"),
        ] {
            let module: &'static [_] = Box::leak(Box::new([("page.js", module)]));
            let error = of(module).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
