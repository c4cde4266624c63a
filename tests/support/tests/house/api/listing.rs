//! The listing of a crate's public items as text.

use super::tree::{ModulePath, Target, Tree, attributes, imports, is_published, name};
use quote::ToTokens;
use std::collections::BTreeSet;
use syn::{Attribute, Expr, Fields, ImplItem, Item, ItemImpl, TraitItem, Type, Visibility, parse_quote};

/// Attributes that are part of an interface.
const ATTRIBUTES: [&str; 7] =
    ["cfg", "deprecated", "derive", "macro_export", "must_use", "non_exhaustive", "repr"];
/// Stands for fields that are not public, until the listing is text.
const PRIVATE_FIELDS: &str = "private_fields: (),";

/// Listing that is being made.
struct Listing<'a> {
    tree: &'a Tree,
    /// Module as users name it, name, text.
    entries: BTreeSet<(String, String, String)>,
    seen: BTreeSet<(String, ModulePath)>,
}

/// Returns the listing of a crate.
pub fn listing(tree: &Tree) -> String {
    let mut listing = Listing { tree, entries: BTreeSet::new(), seen: BTreeSet::new() };
    listing.module(&vec![], "");
    listing.others();
    let mut text = String::new();
    let mut module = None;
    for (path, _, entry) in &listing.entries {
        if module != Some(path) {
            let title = if path.is_empty() { "crate" } else { path };
            text += &format!("{}// {title}\n", if text.is_empty() { "" } else { "\n" });
            module = Some(path);
        }
        text += &format!("\n{entry}");
    }
    text
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn visibility(item: &Item) -> Option<&Visibility> {
    Some(match item {
        Item::Const(item) => &item.vis,
        Item::Enum(item) => &item.vis,
        Item::Fn(item) => &item.vis,
        Item::Mod(item) => &item.vis,
        Item::Static(item) => &item.vis,
        Item::Struct(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::Type(item) => &item.vis,
        Item::Union(item) => &item.vis,
        Item::Use(item) => &item.vis,
        _ => return None,
    })
}

fn strip(attributes: &mut Vec<Attribute>) {
    attributes.retain(|one| ATTRIBUTES.iter().any(|kept| one.path().is_ident(kept)));
}

/// Removes the fields of a struct that are not public, and says that there are some.
fn strip_fields(fields: &mut Fields) {
    match fields {
        Fields::Named(named) => {
            let all = std::mem::take(&mut named.named);
            let count = all.len();
            named.named = all.into_iter().filter(|field| is_public(&field.vis)).collect();
            let has_private = named.named.len() < count;
            named.named.iter_mut().for_each(|field| strip(&mut field.attrs));
            if has_private {
                named.named.push(parse_quote!(private_fields: ()));
            }
        }
        Fields::Unnamed(unnamed) => {
            for field in &mut unnamed.unnamed {
                strip(&mut field.attrs);
                if !is_public(&field.vis) {
                    field.ty = parse_quote!(_);
                    field.vis = Visibility::Inherited;
                }
            }
        }
        Fields::Unit => {}
    }
}

/// Returns the value of a constant where it is a number or text, else `_`.
fn short(value: &Expr) -> Expr {
    if matches!(value, Expr::Lit(_) | Expr::Binary(_)) { value.clone() } else { parse_quote!(_) }
}

/// Removes from an item everything that users cannot rely on: documentation, bodies, private fields.
fn declaration(item: &Item) -> Item {
    let mut item = item.clone();
    if let Some(attributes) = attributes(&mut item) {
        strip(attributes);
    }
    match &mut item {
        Item::Const(item) => *item.expr = short(&item.expr),
        Item::Static(item) => *item.expr = parse_quote!(_),
        Item::Fn(item) => *item.block = parse_quote!({}),
        Item::Struct(item) => strip_fields(&mut item.fields),
        Item::Enum(item) => {
            for variant in &mut item.variants {
                strip(&mut variant.attrs);
                variant.fields.iter_mut().for_each(|field| strip(&mut field.attrs));
            }
        }
        Item::Trait(item) => {
            item.items.retain(|one| !matches!(one, TraitItem::Fn(one) if !is_published(&one.attrs)));
            for one in &mut item.items {
                match one {
                    TraitItem::Fn(one) => {
                        strip(&mut one.attrs);
                        one.default = one.default.take().map(|_| parse_quote!({}));
                    }
                    TraitItem::Const(one) => strip(&mut one.attrs),
                    TraitItem::Type(one) => strip(&mut one.attrs),
                    _ => {}
                }
            }
        }
        _ => {}
    }
    item
}

fn print(items: Vec<Item>) -> String {
    let text = prettyplease::unparse(&syn::File { shebang: None, attrs: vec![], items });
    text.replace(PRIVATE_FIELDS, "// private fields")
}

/// Returns an `impl` with what users can call; nothing if that is nothing.
fn public_part(block: &ItemImpl) -> Option<ItemImpl> {
    let mut block = block.clone();
    strip(&mut block.attrs);
    let is_inherent = block.trait_.is_none();
    block.items.retain_mut(|item| match item {
        ImplItem::Fn(item) => {
            let is_kept = is_inherent && is_public(&item.vis) && is_published(&item.attrs);
            item.block = parse_quote!({});
            strip(&mut item.attrs);
            is_kept
        }
        ImplItem::Const(item) => {
            item.expr = short(&item.expr);
            strip(&mut item.attrs);
            is_inherent && is_public(&item.vis)
        }
        ImplItem::Type(item) => {
            strip(&mut item.attrs);
            true
        }
        _ => false,
    });
    block.items.sort_by_cached_key(|item| match item {
        ImplItem::Fn(item) => item.sig.ident.to_string(),
        item => item.to_token_stream().to_string(),
    });
    (!is_inherent || !block.items.is_empty()).then_some(block)
}

/// Returns the call of a macro, with documentation as it is.
fn call(item: &syn::ItemMacro) -> String {
    format!("{}! {{ {} }}\n", segments(&item.mac.path).join("::"), item.mac.tokens)
}

fn segments(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

impl Listing<'_> {
    fn add(&mut self, exported: &str, name: String, text: String) {
        self.entries.insert((exported.to_owned(), name, text));
    }

    /// Lists the public items of a module that users know as `exported`.
    fn module(&mut self, module: &ModulePath, exported: &str) {
        if !self.seen.insert((exported.to_owned(), module.clone())) {
            return;
        }
        let tree = self.tree;
        for item in tree.items(module) {
            match item {
                Item::Macro(item) if item.mac.path.is_ident("compile_error") => {}
                Item::Macro(item) if item.ident.is_none() => {
                    let text = call(item);
                    self.add(exported, format!("~{text}"), text);
                }
                Item::Macro(item) if item.attrs.iter().any(|one| one.path().is_ident("macro_export")) => {
                    let name = item.ident.as_ref().map(ToString::to_string).unwrap_or_default();
                    self.add("", name.clone(), format!("macro_rules! {name}\n"));
                }
                _ if !visibility(item).is_some_and(is_public) => {}
                Item::Mod(item) => {
                    let path = [module.as_slice(), &[item.ident.to_string()]].concat();
                    self.module(&path, &join(exported, &item.ident.to_string()));
                }
                Item::Use(item) => {
                    for import in imports(&item.tree) {
                        self.export(module, exported, &import.path, &import.alias);
                    }
                }
                item => self.item(module, item, exported, None),
            }
        }
    }

    /// Lists what a `pub use` exports.
    fn export(&mut self, module: &ModulePath, exported: &str, path: &[String], alias: &str) {
        match self.tree.resolve(module, path) {
            Target::Module(from) if alias == "*" => self.module(&from, exported),
            Target::Module(from) => self.module(&from, &join(exported, alias)),
            Target::Item(from, item) => {
                let is_renamed = name(item).as_deref() != Some(alias);
                self.item(&from, item, exported, is_renamed.then_some(alias));
            }
            Target::External | Target::Unknown => {
                let last = path.last().map(String::as_str);
                let renamed =
                    if alias == "*" || last == Some(alias) { String::new() } else { format!(" as {alias}") };
                let glob = if alias == "*" { "::*" } else { "" };
                let macros = self.macros_that_name(module, path);
                let text = format!("pub use {}{glob}{renamed};\n{macros}", path.join("::"));
                self.add(exported, alias.to_owned(), text);
            }
        }
    }

    /// Returns the calls of macros that name an exported item in the module that it is exported from.
    fn macros_that_name(&self, module: &ModulePath, path: &[String]) -> String {
        let Some((last, home)) = path.split_last() else { return String::new() };
        let Target::Module(home) = self.tree.resolve(module, home) else { return String::new() };
        let items = self.tree.items(&home).iter();
        let calls =
            items.filter_map(|item| if let Item::Macro(item) = item { Some(call(item)) } else { None });
        calls.filter(|text| text.split_whitespace().any(|word| word == last)).collect()
    }

    /// Lists an item and its `impl` blocks.
    fn item(&mut self, module: &ModulePath, item: &Item, exported: &str, alias: Option<&str>) {
        let Some(name) = name(item) else { return };
        let mut text = alias.map(|alias| format!("// as {alias}\n")).unwrap_or_default();
        text += &print(vec![declaration(item)]);
        let mut blocks = Vec::new();
        for (at, block) in self.impls() {
            if let Type::Path(path) = &*block.self_ty
                && let Target::Item(home, found) = self.tree.resolve(at, &segments(&path.path))
                && home == *module
                && self::name(found).as_ref() == Some(&name)
                && self.is_public_trait(at, block)
            {
                blocks.extend(public_part(block).map(|block| print(vec![Item::Impl(block)])));
            }
        }
        blocks.sort();
        text += &blocks.concat();
        self.add(exported, alias.map_or(name, str::to_owned), text);
    }

    fn impls(&self) -> impl Iterator<Item = (&ModulePath, &ItemImpl)> {
        let items = self.tree.modules().flat_map(|(path, items)| items.iter().map(move |item| (path, item)));
        items.filter_map(|(path, item)| if let Item::Impl(block) = item { Some((path, block)) } else { None })
    }

    /// Returns true if users can see that a type has the trait of an `impl`.
    fn is_public_trait(&self, at: &ModulePath, block: &ItemImpl) -> bool {
        let Some((_, path, _)) = &block.trait_ else { return true };
        match self.tree.resolve(at, &segments(path)) {
            Target::Item(_, item) => visibility(item).is_some_and(is_public),
            _ => true,
        }
    }

    /// Lists traits that this crate gives to types of others, at the end of the root.
    fn others(&mut self) {
        let mut texts = Vec::new();
        for (at, block) in self.impls() {
            let is_own = matches!(&*block.self_ty, Type::Path(path)
                if !matches!(self.tree.resolve(at, &segments(&path.path)), Target::External));
            if !is_own && self.is_public_trait(at, block) {
                texts.extend(public_part(block).map(|block| print(vec![Item::Impl(block)])));
            }
        }
        for text in texts {
            self.add("", format!("~{text}"), text);
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}::{name}") }
}
