//! Joins the scripts of a folder into one: each module after those that it imports, without `import` and
//! `export`.
//!
//! A page in one file cannot import. To keep joining a matter of lines, a module of the page imports as
//! `import { a, b } from './c.js';` in one line at the top, and exports functions, classes and constants at
//! their declaration. No two modules declare the same name at the top level.

use crate::error::Error;
use std::collections::BTreeSet;
use std::iter::once;

/// Joins the module `entry` and all modules that it needs. `text` reads a module by its name.
///
/// # Errors
/// [`Error::Module`] if a module breaks the rules above or declares another module's name; the error of
/// `text` if it cannot read a module.
pub fn joined(entry: &str, text: &dyn Fn(&str) -> Result<String, Error>) -> Result<String, Error> {
    let mut joined = Joined { text, taken: BTreeSet::new(), names: BTreeSet::new(), script: String::new() };
    joined.add(entry)?;
    Ok(joined.script)
}

struct Joined<'a> {
    text: &'a dyn Fn(&str) -> Result<String, Error>,
    /// Modules that are added already or being added.
    taken: BTreeSet<String>,
    /// Names that the modules declare at the top level.
    names: BTreeSet<String>,
    script: String,
}

impl Joined<'_> {
    /// Adds a module after its imports. A module that is being added already is skipped, so cyclic imports
    /// end; this works because functions may be used before their declaration.
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

/// Returns the name that a line at the top level declares.
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

    fn join(modules: &'static [(&'static str, &'static str)]) -> Result<String, Error> {
        joined("page.js", &|name| {
            let found = modules.iter().find(|module| module.0 == name);
            found
                .map(|module| module.1.to_owned())
                .ok_or(Error::File { path: name.into(), source: std::io::ErrorKind::NotFound.into() })
        })
    }

    #[test]
    fn what_is_imported_comes_first_and_once() {
        let script = join(&[
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
            let error = join(module).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
