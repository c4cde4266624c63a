//! Modules of a crate as its source files state them, and the resolution of paths in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use syn::{Attribute, Item, UseTree};

/// Path of a module below the root of its crate; the root itself is empty.
pub type ModulePath = Vec<String>;

/// Greatest number of re-exports that lead from one to the next.
const HOPS_MAX: usize = 16;

/// Items of every module of a crate.
pub struct Tree {
    modules: BTreeMap<ModulePath, Vec<Item>>,
}

/// Item that a path leads to.
pub enum Target<'a> {
    /// Item of this crate, and the module that defines it.
    Item(ModulePath, &'a Item),
    /// Module of this crate.
    Module(ModulePath),
    /// Item of another crate.
    External,
    /// Item of this crate that no source file spells out: a macro makes it.
    Unknown,
}

/// One name that a `use` brings into a module; the alias of a glob is `*`.
#[derive(Clone)]
pub struct Import {
    pub path: Vec<String>,
    pub alias: String,
}

/// Returns true if an attribute excludes an item from every build but those of tests.
fn is_for_tests(attribute: &Attribute) -> bool {
    let text = attribute.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
    attribute.path().is_ident("cfg")
        && (text == "loom"
            || text == "test"
            || text.starts_with("all (test")
            || text.starts_with("all (loom"))
}

/// Returns true if an attribute hides an item from the documentation.
fn is_hidden(attribute: &Attribute) -> bool {
    let text = attribute.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
    attribute.path().is_ident("doc") && text == "hidden"
}

/// Returns true if an item with these attributes belongs to the interface of a crate.
pub fn is_published(attributes: &[Attribute]) -> bool {
    !attributes.iter().any(|attribute| is_for_tests(attribute) || is_hidden(attribute))
}

/// Returns the name of an item that has one, without those of modules.
pub fn name(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        Item::Union(item) => item.ident.to_string(),
        _ => return None,
    })
}

/// Returns the attributes of an item.
pub fn attributes(item: &mut Item) -> Option<&mut Vec<Attribute>> {
    Some(match item {
        Item::Const(item) => &mut item.attrs,
        Item::Enum(item) => &mut item.attrs,
        Item::Fn(item) => &mut item.attrs,
        Item::Impl(item) => &mut item.attrs,
        Item::Macro(item) => &mut item.attrs,
        Item::Mod(item) => &mut item.attrs,
        Item::Static(item) => &mut item.attrs,
        Item::Struct(item) => &mut item.attrs,
        Item::Trait(item) => &mut item.attrs,
        Item::Type(item) => &mut item.attrs,
        Item::Union(item) => &mut item.attrs,
        Item::Use(item) => &mut item.attrs,
        _ => return None,
    })
}

/// Returns every name that a `use` brings in.
pub fn imports(tree: &UseTree) -> Vec<Import> {
    match tree {
        UseTree::Path(path) => {
            let mut below = imports(&path.tree);
            below.iter_mut().for_each(|import| import.path.insert(0, path.ident.to_string()));
            below
        }
        // `use a::{self}` imports a.
        UseTree::Name(name) if name.ident == "self" => vec![Import { path: vec![], alias: String::new() }],
        UseTree::Name(name) => {
            vec![Import { path: vec![name.ident.to_string()], alias: name.ident.to_string() }]
        }
        UseTree::Rename(rename) => {
            vec![Import { path: vec![rename.ident.to_string()], alias: rename.rename.to_string() }]
        }
        UseTree::Glob(_) => vec![Import { path: vec![], alias: "*".into() }],
        UseTree::Group(group) => group.items.iter().flat_map(imports).collect(),
    }
    .into_iter()
    .map(|mut import| {
        if import.alias.is_empty() {
            import.alias = import.path.last().cloned().unwrap_or_default();
        }
        import
    })
    .collect()
}

impl Tree {
    /// Reads the crate whose root module is the given file.
    pub fn read(root: &Path) -> Tree {
        let mut tree = Tree { modules: BTreeMap::new() };
        let folder = root.parent().expect("the folder of a source file");
        tree.add_file(root, folder, vec![]);
        tree
    }

    fn add_file(&mut self, file: &Path, folder: &Path, path: ModulePath) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.add(parsed.items, folder, path);
    }

    /// Adds a module whose submodules have their files in `folder`.
    fn add(&mut self, items: Vec<Item>, folder: &Path, path: ModulePath) {
        let mut kept = Vec::new();
        for mut item in items {
            if attributes(&mut item).is_some_and(|attributes| !is_published(attributes)) {
                continue;
            }
            if let Item::Mod(module) = &mut item {
                let name = module.ident.to_string();
                assert!(
                    !module.attrs.iter().any(|one| one.path().is_ident("path")),
                    "#[path] of {name} is not read"
                );
                let path = [path.as_slice(), std::slice::from_ref(&name)].concat();
                let below = folder.join(&name);
                match module.content.take() {
                    Some((_, items)) => self.add(items, &below, path),
                    None if below.join("mod.rs").exists() => {
                        self.add_file(&below.join("mod.rs"), &below, path)
                    }
                    None => self.add_file(&folder.join(format!("{name}.rs")), &below, path),
                }
            }
            kept.push(item);
        }
        self.modules.insert(path, kept);
    }

    /// Returns the modules and their items.
    pub fn modules(&self) -> impl Iterator<Item = (&ModulePath, &Vec<Item>)> {
        self.modules.iter()
    }

    /// Returns the items of a module.
    pub fn items(&self, module: &ModulePath) -> &[Item] {
        &self.modules[module]
    }

    /// Resolves a path that is written in a module.
    pub fn resolve(&self, module: &ModulePath, path: &[String]) -> Target<'_> {
        self.resolve_within(module, path, HOPS_MAX)
    }

    fn resolve_within(&self, module: &ModulePath, path: &[String], hops: usize) -> Target<'_> {
        let mut at = module.clone();
        let mut rest = path;
        let mut is_anchored = false;
        while let Some((first, behind)) = rest.split_first() {
            match first.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                _ => break,
            }
            (rest, is_anchored) = (behind, true);
        }
        while let Some((first, behind)) = rest.split_first() {
            let child = [at.as_slice(), std::slice::from_ref(first)].concat();
            if self.modules.contains_key(&child) {
                (at, rest, is_anchored) = (child, behind, true);
                continue;
            }
            return match self.look_up(&at, first, hops) {
                Target::Module(found) if !behind.is_empty() => self.resolve_within(&found, behind, hops),
                Target::Unknown if !is_anchored => Target::External,
                target => target,
            };
        }
        Target::Module(at)
    }

    /// Finds a name that a module defines or imports.
    fn look_up(&self, module: &ModulePath, wanted: &str, hops: usize) -> Target<'_> {
        let items = &self.modules[module];
        if let Some(item) = items.iter().find(|item| name(item).as_deref() == Some(wanted)) {
            return Target::Item(module.clone(), item);
        }
        if hops == 0 {
            return Target::Unknown;
        }
        let uses = items.iter().filter_map(|item| if let Item::Use(item) = item { Some(item) } else { None });
        let imports: Vec<Import> = uses.flat_map(|item| imports(&item.tree)).collect();
        if let Some(import) = imports.iter().find(|import| import.alias == wanted) {
            // `use x::{self}` of a crate x: its first segment is no name of this module.
            let is_itself = import.path.first().is_some_and(|first| first == wanted);
            return if is_itself {
                Target::External
            } else {
                self.resolve_within(module, &import.path, hops - 1)
            };
        }
        for glob in imports.iter().filter(|import| import.alias == "*") {
            if let Target::Module(from) = self.resolve_within(module, &glob.path, hops - 1)
                && &from != module
                && let found @ (Target::Item(..) | Target::Module(_)) = self.look_up(&from, wanted, hops - 1)
            {
                return found;
            }
        }
        Target::Unknown
    }
}
