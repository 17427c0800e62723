//! Which modules each module refers to: every path of `use` declarations, types, expressions,
//! patterns, attributes and macros' tokens is followed to the module that defines what it names.
//!
//! Re-exports are followed, so importing through a parent's `pub use` counts as importing from the
//! defining module. Naming a module alone counts for nothing: what is reached through it counts.
//! Method calls name no path and are not seen, so methods of one type in several modules tie these
//! together unnoticed.

use super::source::{ModuleId, Names, Sources, Tree, attributes, is_test, leaves};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, ItemUse, Macro, Meta, Path, Stmt, TraitItem, Visibility};

/// Where one module refers to another: the line's number and text.
pub(crate) type Reference = (usize, String);

/// References by module that has them and module that they lead to, the first line of each.
pub(crate) type References = BTreeMap<(ModuleId, ModuleId), Reference>;

/// Returns all references between two modules of `tree`.
pub(crate) fn references(tree: &Tree, sources: &Sources) -> References {
    let mut found = References::new();
    for (module, content) in tree.modules.iter().enumerate() {
        let lines: Vec<&str> = sources[&content.file].lines().collect();
        let mut collector = Collector { tree, module, lines: &lines, found: &mut found };
        for item in &content.syntax {
            collector.visit_item(item);
        }
    }
    found
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Module(ModuleId),
    /// Something that this module defines, or takes from another crate.
    Item(ModuleId),
}

/// The names that are being looked up, lest imports that lead to each other do so for ever.
type Pending = BTreeSet<(ModuleId, String)>;

/// Returns what `names` lead to from the module `from`; nothing if that is not in this crate.
fn resolve(tree: &Tree, from: ModuleId, names: &[String], pending: &mut Pending) -> BTreeSet<Target> {
    let mut current = from;
    let mut rest = names;
    let mut absolute = false;
    while let Some((first, after)) = rest.split_first() {
        match first.as_str() {
            "crate" => current = 0,
            "self" => {}
            "super" => match tree.modules[current].parent {
                Some(parent) => current = parent,
                None => return BTreeSet::new(),
            },
            _ => break,
        }
        absolute = true;
        rest = after;
    }
    let Some((first, mut rest)) = rest.split_first() else {
        return BTreeSet::from([Target::Module(current)]);
    };
    let mut targets = lookup(tree, current, first, pending);
    if targets.is_empty() && absolute {
        // A macro defines it.
        return BTreeSet::from([Target::Item(current)]);
    }
    while let Some((name, after)) = rest.split_first() {
        // A module hides a function of the same name.
        let has_module = targets.iter().any(|target| matches!(target, Target::Module(_)));
        targets = targets
            .into_iter()
            .flat_map(|target| match target {
                Target::Module(module) => {
                    let found = lookup(tree, module, name, pending);
                    if found.is_empty() { BTreeSet::from([Target::Item(module)]) } else { found }
                }
                Target::Item(_) if has_module => BTreeSet::new(),
                // An associated item or a variant.
                Target::Item(_) => BTreeSet::from([target]),
            })
            .collect();
        rest = after;
    }
    targets
}

/// Returns what `name` stands for in `module`.
fn lookup(tree: &Tree, module: ModuleId, name: &str, pending: &mut Pending) -> BTreeSet<Target> {
    if !pending.insert((module, name.to_owned())) {
        return BTreeSet::new();
    }
    let content = &tree.modules[module];
    let mut found = BTreeSet::new();
    if let Some(child) = content.children.get(name) {
        found.insert(Target::Module(*child));
    }
    if content.items.contains(name) {
        found.insert(Target::Item(module));
    }
    for path in content.imports.get(name).into_iter().flatten() {
        let targets = resolve(tree, module, path, pending);
        // Taken from another crate: whoever takes it from here depends on this module.
        found.extend(if targets.is_empty() { BTreeSet::from([Target::Item(module)]) } else { targets });
    }
    if found.is_empty() {
        for path in &content.globs {
            for target in resolve(tree, module, path, pending) {
                if let Target::Module(other) = target {
                    found.extend(lookup(tree, other, name, pending));
                }
            }
        }
    }
    pending.remove(&(module, name.to_owned()));
    found
}

/// Collects the references of one module.
struct Collector<'a> {
    tree: &'a Tree,
    module: ModuleId,
    lines: &'a [&'a str],
    found: &'a mut References,
}

impl Collector<'_> {
    fn add(&mut self, to: ModuleId, line: usize) {
        if to != self.module {
            let text = self.lines.get(line - 1).map_or("", |text| text.trim());
            self.found.entry((self.module, to)).or_insert_with(|| (line, text.to_owned()));
        }
    }

    /// Adds what `names` lead to, and modules themselves if `modules_count`.
    fn follow(&mut self, names: &[String], line: usize, modules_count: bool) {
        for target in resolve(self.tree, self.module, names, &mut Pending::new()) {
            match target {
                Target::Item(module) => self.add(module, line),
                Target::Module(module) if modules_count => self.add(module, line),
                Target::Module(_) => {}
            }
        }
    }

    /// Follows each `a::b` among `tokens`.
    fn follow_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => self.follow_tokens(group.stream()),
                TokenTree::Ident(first) => {
                    let line = first.span().start().line;
                    let mut names = vec![first.to_string()];
                    while let [TokenTree::Punct(one), TokenTree::Punct(two), TokenTree::Ident(name), ..] =
                        &tokens[at + 1..]
                        && (one.as_char(), two.as_char()) == (':', ':')
                    {
                        names.push(name.to_string());
                        at += 3;
                    }
                    if names.len() > 1 {
                        self.follow(&names, line, true);
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// Follows the paths that attributes have in strings, as `#[serde(with = "module")]`.
    fn follow_strings(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.follow_strings(group.stream()),
                TokenTree::Literal(literal) => {
                    let text = literal.to_string();
                    let text = text.trim_matches('"');
                    let is_name =
                        |name: &str| name.starts_with(|first: char| first.is_alphabetic() || first == '_');
                    let names: Names = text.split("::").map(str::to_owned).collect();
                    if names.iter().all(|name| is_name(name) && !name.contains(' ')) {
                        self.follow(&names, literal.span().start().line, true);
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        // Modules have a collector of their own.
        if !is_test(attributes(item)) && !matches!(item, Item::Mod(_)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let test = match item {
            ImplItem::Const(item) => is_test(&item.attrs),
            ImplItem::Fn(item) => is_test(&item.attrs),
            ImplItem::Type(item) => is_test(&item.attrs),
            ImplItem::Macro(item) => is_test(&item.attrs),
            _ => false,
        };
        if !test {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        if !matches!(item, TraitItem::Fn(item) if is_test(&item.attrs)) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        let test = match statement {
            Stmt::Local(local) => is_test(&local.attrs),
            Stmt::Macro(call) => is_test(&call.attrs),
            Stmt::Expr(syn::Expr::Block(block), _) => is_test(&block.attrs),
            _ => false,
        };
        if !test {
            visit::visit_stmt(self, statement);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        for leaf in leaves(item) {
            if leaf.name.is_some() {
                self.follow(&leaf.path, leaf.line, false);
                continue;
            }
            for target in resolve(self.tree, self.module, &leaf.path, &mut Pending::new()) {
                match target {
                    Target::Item(module) => self.add(module, leaf.line),
                    // What it re-exports counts where it is named.
                    Target::Module(module) if !self.tree.modules[module].items.is_empty() => {
                        self.add(module, leaf.line);
                    }
                    Target::Module(_) => {}
                }
            }
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if let (None, Some(first)) = (&path.leading_colon, path.segments.first()) {
            let names: Names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.follow(&names, first.ident.span().start().line, false);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        if let Some(name) = call.path.get_ident()
            && lookup(self.tree, self.module, &name.to_string(), &mut Pending::new()).is_empty()
            && let Some(&module) = self.tree.macros.get(&name.to_string())
        {
            self.add(module, name.span().start().line);
        }
        self.follow_tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        match &attribute.meta {
            Meta::List(list) => {
                self.follow_tokens(list.tokens.clone());
                self.follow_strings(list.tokens.clone());
            }
            Meta::NameValue(pair) if !pair.path.is_ident("doc") => self.visit_expr(&pair.value),
            _ => {}
        }
    }

    /// `pub(in path)` depends on nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}
