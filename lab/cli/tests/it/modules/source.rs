//! The modules of a crate, read from its sources: files and inline modules, with the names that
//! each of them has.
//!
//! Unit tests (`#[cfg(test)]`) are left out. Modules that a macro declares are not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, File, ForeignItem, Item, ItemUse, Meta, UseTree};

/// Source files by their path from the crate's directory.
pub(crate) type Sources = BTreeMap<PathBuf, String>;

/// A path as its names, such as `["crate", "pool", "Pool"]`.
pub(crate) type Names = Vec<String>;

/// Index of a module in [`Tree::modules`]; that of the root is 0.
pub(crate) type ModuleId = usize;

/// The modules below one crate root (`lib.rs`, `main.rs` or a file of `bin/`).
pub(crate) struct Tree {
    pub(crate) modules: Vec<Module>,
    /// Where each `macro_rules!` is defined: macros are also found by the order of the text.
    pub(crate) macros: BTreeMap<String, ModuleId>,
}

/// A file or an inline module.
pub(crate) struct Module {
    /// The path from the crate root; empty for the root.
    pub(crate) names: Names,
    pub(crate) parent: Option<ModuleId>,
    pub(crate) file: PathBuf,
    pub(crate) children: BTreeMap<String, ModuleId>,
    /// What is defined here, modules aside.
    pub(crate) items: BTreeSet<String>,
    /// What `use` makes a name of, those within functions included.
    pub(crate) imports: BTreeMap<String, Vec<Names>>,
    /// The paths of `use path::*`.
    pub(crate) globs: Vec<Names>,
    pub(crate) syntax: Vec<Item>,
}

/// Reads all sources below `src` of the crate in `directory`.
///
/// # Panics
/// If a file cannot be read.
pub(crate) fn read_sources(directory: &Path) -> Sources {
    let mut sources = Sources::new();
    let mut pending = vec![directory.join("src")];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            pending.extend(entries.map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            sources.insert(path.strip_prefix(directory).unwrap().to_owned(), text);
        }
    }
    sources
}

/// Returns the crate roots among `sources`.
pub(crate) fn roots(sources: &Sources) -> Vec<PathBuf> {
    let is_root = |path: &Path| {
        path == Path::new("src/lib.rs")
            || path == Path::new("src/main.rs")
            || path.parent() == Some(Path::new("src/bin"))
    };
    sources.keys().filter(|path| is_root(path)).cloned().collect()
}

/// Returns whether `attributes` leave an item to unit tests.
pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition == "test" || condition.starts_with("all (test")
        }
        _ => false,
    })
}

/// Returns the attributes of `item`.
pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

impl Tree {
    /// Reads the modules below the crate root `root`.
    ///
    /// # Panics
    /// If a source does not parse, or the file of a module is missing.
    pub(crate) fn read(sources: &Sources, root: &Path) -> Self {
        let mut tree = Self { modules: Vec::new(), macros: BTreeMap::new() };
        let folder = root.parent().expect("a root lies in a folder").to_owned();
        tree.add(sources, Location { names: Vec::new(), parent: None, file: root.to_owned(), folder }, None);
        tree
    }

    /// Adds a module and those below it. `inline` is what it holds, unless it is a file.
    fn add(&mut self, sources: &Sources, location: Location, inline: Option<Vec<Item>>) -> ModuleId {
        let mut syntax = inline.unwrap_or_else(|| parse(sources, &location.file).items);
        let id = self.modules.len();
        let Location { names, parent, file, folder } = location;
        self.modules.push(Module {
            names: names.clone(),
            parent,
            file: file.clone(),
            children: BTreeMap::new(),
            items: BTreeSet::new(),
            imports: BTreeMap::new(),
            globs: Vec::new(),
            syntax: Vec::new(),
        });
        for item in &mut syntax {
            if is_test(attributes(item)) {
                continue;
            }
            let Item::Mod(module) = item else {
                self.define(id, item);
                continue;
            };
            let name = module.ident.to_string();
            let inline = module.content.take().map(|(_, items)| items);
            let (child_file, child_folder) = if inline.is_some() {
                (file.clone(), folder.join(&name))
            } else {
                file_of(sources, module, &file, &folder)
            };
            let mut names = names.clone();
            names.push(name.clone());
            let location = Location { names, parent: Some(id), file: child_file, folder: child_folder };
            let child = self.add(sources, location, inline);
            self.modules[id].children.insert(name, child);
        }
        let mut imports = Imports { module: &mut self.modules[id] };
        for item in &syntax {
            imports.visit_item(item);
        }
        self.modules[id].syntax = syntax;
        id
    }

    /// Notes what `item` defines in the module `id`.
    fn define(&mut self, id: ModuleId, item: &Item) {
        let name = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::TraitAlias(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            Item::ForeignMod(item) => {
                let names = item.items.iter().filter_map(|item| match item {
                    ForeignItem::Fn(item) => Some(item.sig.ident.to_string()),
                    ForeignItem::Static(item) => Some(item.ident.to_string()),
                    ForeignItem::Type(item) => Some(item.ident.to_string()),
                    _ => None,
                });
                self.modules[id].items.extend(names);
                return;
            }
            Item::Macro(item) => {
                let Some(ident) = &item.ident else { return };
                let name = ident.to_string();
                if item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")) && id != 0 {
                    let mut path = vec!["crate".to_owned()];
                    path.extend(self.modules[id].names.iter().cloned());
                    path.push(name.clone());
                    self.modules[0].imports.entry(name.clone()).or_default().push(path);
                }
                self.macros.insert(name, id);
                ident
            }
            _ => return,
        };
        self.modules[id].items.insert(name.to_string());
    }
}

/// Where a module is.
struct Location {
    names: Names,
    parent: Option<ModuleId>,
    file: PathBuf,
    /// Where the files of its children are.
    folder: PathBuf,
}

fn parse(sources: &Sources, file: &Path) -> File {
    let text = sources.get(file).unwrap_or_else(|| panic!("{}: no such source", file.display()));
    syn::parse_file(text)
        .unwrap_or_else(|error| panic!("{}:{}: {error}", file.display(), error.span().start().line))
}

/// Returns the file of a module declared in `file`, and the folder of its children.
fn file_of(sources: &Sources, module: &syn::ItemMod, file: &Path, folder: &Path) -> (PathBuf, PathBuf) {
    let name = module.ident.to_string();
    let given = module.attrs.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => Some(path.value()),
            _ => None,
        },
        _ => None,
    });
    if let Some(given) = given {
        let path = file.parent().expect("a file lies in a folder").join(given);
        let folder = path.parent().expect("a file lies in a folder").to_owned();
        return (path, folder);
    }
    let beside = folder.join(format!("{name}.rs"));
    let within = folder.join(&name).join("mod.rs");
    let path = if sources.contains_key(&beside) { beside } else { within };
    (path, folder.join(name))
}

/// Collects the `use` declarations of a module, those within its functions included.
struct Imports<'a> {
    module: &'a mut Module,
}

impl<'a> Visit<'a> for Imports<'_> {
    fn visit_item(&mut self, item: &'a Item) {
        if !is_test(attributes(item)) && !matches!(item, Item::Mod(_)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        for leaf in leaves(item) {
            match leaf.name {
                Some(name) => self.module.imports.entry(name).or_default().push(leaf.path),
                None => self.module.globs.push(leaf.path),
            }
        }
    }
}

/// One path that a `use` declaration names.
pub(crate) struct UseLeaf {
    pub(crate) path: Names,
    /// What it is called here; `None` for a glob.
    pub(crate) name: Option<String>,
    pub(crate) line: usize,
}

/// Returns the paths that `item` names. Paths of other crates (`::name`) are left out.
pub(crate) fn leaves(item: &ItemUse) -> Vec<UseLeaf> {
    let mut found = Vec::new();
    if item.leading_colon.is_none() {
        add_leaves(&item.tree, &mut Vec::new(), &mut found);
    }
    found
}

fn add_leaves(tree: &UseTree, path: &mut Names, found: &mut Vec<UseLeaf>) {
    let mut add = |ident: &syn::Ident, name: &syn::Ident| {
        let mut path = path.clone();
        if ident != "self" || path.is_empty() {
            path.push(ident.to_string());
        }
        let name = if name == "self" { path.last().expect("not empty").clone() } else { name.to_string() };
        found.push(UseLeaf { path, name: Some(name), line: ident.span().start().line });
    };
    match tree {
        UseTree::Path(tree) => {
            path.push(tree.ident.to_string());
            add_leaves(&tree.tree, path, found);
            path.pop();
        }
        UseTree::Name(tree) => add(&tree.ident, &tree.ident),
        UseTree::Rename(tree) => add(&tree.ident, &tree.rename),
        UseTree::Glob(tree) => {
            let line = tree.star_token.spans[0].start().line;
            found.push(UseLeaf { path: path.clone(), name: None, line });
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| add_leaves(tree, path, found)),
    }
}
