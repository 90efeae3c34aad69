//! The modules of a crate, and the file that a path such as `crate::a::B` leads to.

use std::collections::{BTreeMap, BTreeSet};

use super::tokens::{after_closing, tokens};

type Path = Vec<String>;

struct Use {
    /// What the name is here; none for `*`.
    name: Option<String>,
    path: Path,
    /// Whether other modules see the name, too.
    is_public: bool,
}

/// A module, in a file of its own or within another one's.
struct Module {
    file: String,
    root: usize,
    parent: usize,
    children: BTreeMap<String, usize>,
    definitions: BTreeSet<String>,
    uses: Vec<Use>,
    /// The paths in its code, of one segment or more.
    mentions: BTreeSet<Path>,
    is_face: bool,
}

/// All modules of one crate.
pub(crate) struct Modules {
    all: Vec<Module>,
    /// Files that only declare modules and hand names on.
    faces: BTreeSet<String>,
}

/// One import: the file it stands in, the file that defines the name, and the name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) name: String,
}

/// The names that were looked up on the way along a path, and where. Names that stand for each
/// other are looked up once.
type Seen = BTreeSet<(usize, String)>;

enum Found {
    Module(usize),
    Item {
        module: usize,
        name: String,
    },
    /// Of another crate, or a name of the language's own.
    Foreign,
}

impl Modules {
    /// The crate whose root is the file `root`, such as `src/lib.rs`.
    pub(crate) fn of(root: &str, files: &BTreeMap<String, String>) -> Self {
        let mut modules = Self { all: Vec::new(), faces: BTreeSet::new() };
        let first = modules.add(root, 0);
        modules.read_file(first, files);
        modules.faces = modules.all.iter().map(|module| module.file.clone()).collect();
        for module in modules.all.iter().filter(|module| !module.is_face) {
            modules.faces.remove(&module.file);
        }
        modules
    }

    fn add(&mut self, file: &str, parent: usize) -> usize {
        self.all.push(Module {
            file: file.into(),
            root: 0,
            parent,
            children: BTreeMap::new(),
            definitions: BTreeSet::new(),
            uses: Vec::new(),
            mentions: BTreeSet::new(),
            is_face: true,
        });
        self.all.len() - 1
    }

    fn read_file(&mut self, module: usize, files: &BTreeMap<String, String>) {
        let file = self.all[module].file.clone();
        let Some(text) = files.get(&file) else { return };
        let (folder, name) = file.rsplit_once('/').unwrap_or(("", &file));
        let is_root_of_folder = ["lib.rs", "main.rs", "mod.rs"].contains(&name);
        let folder = if is_root_of_folder {
            folder.to_owned()
        } else {
            format!("{folder}/{}", name.trim_end_matches(".rs"))
        };
        self.read_tokens(module, &tokens(text), &folder, files);
    }

    fn read_tokens(
        &mut self,
        module: usize,
        tokens: &[String],
        folder: &str,
        files: &BTreeMap<String, String>,
    ) {
        const DEFINING: [&str; 8] =
            ["fn", "struct", "enum", "union", "trait", "type", "const", "static"];
        let is = |i: usize, token: &str| tokens.get(i).is_some_and(|t| t == token);
        let is_name = |i: usize| tokens.get(i).is_some_and(|t| t.starts_with(is_name_start));
        let mut i = 0;
        let mut depth = 0_u32;
        let mut is_public = false;
        while i < tokens.len() {
            let token = tokens[i].as_str();
            let begins = depth == 0;
            match token {
                "mod" if begins && is_name(i + 1) => {
                    let name = &tokens[i + 1];
                    let end = if is(i + 2, "{") { after_closing(tokens, i + 2) } else { i + 3 };
                    let inside = format!("{folder}/{name}");
                    if is(i + 2, "{") {
                        let file = self.all[module].file.clone();
                        let child = self.add(&file, module);
                        self.all[module].children.insert(name.clone(), child);
                        self.read_tokens(child, &tokens[i + 3..end - 1], &inside, files);
                        self.all[module].is_face &= self.all[child].is_face;
                    } else {
                        let places = [format!("{inside}.rs"), format!("{inside}/mod.rs")];
                        if let Some(file) = places.iter().find(|file| files.contains_key(*file)) {
                            let child = self.add(file, module);
                            self.all[module].children.insert(name.clone(), child);
                            self.read_file(child, files);
                        }
                    }
                    i = end;
                    continue;
                }
                "pub" => {
                    is_public = true;
                    i = if is(i + 1, "(") { after_closing(tokens, i + 1) } else { i + 1 };
                    continue;
                }
                "use" if !is(i + 1, "<") => {
                    let end = (i..).find(|&k| k >= tokens.len() || is(k, ";")).unwrap_or(i);
                    let mut uses = Vec::new();
                    read_use(&tokens[i + 1..end], &[], is_public, &mut uses);
                    self.all[module].uses.extend(uses);
                    is_public = false;
                    i = end + 1;
                    continue;
                }
                "macro_rules" => {
                    self.all[module].definitions.insert(tokens[i + 2].clone());
                    self.all[module].is_face = false;
                    i += 3;
                    continue;
                }
                "{" => depth += 1,
                "}" => depth = depth.saturating_sub(1),
                "impl" | "!" if begins => self.all[module].is_face = false,
                _ if begins && DEFINING.contains(&token) => {
                    let name = if is(i + 1, "mut") { i + 2 } else { i + 1 };
                    if is_name(name) {
                        self.all[module].definitions.insert(tokens[name].clone());
                        self.all[module].is_face = false;
                    }
                }
                _ if is_name(i) && !(i > 0 && (is(i - 1, ".") || is(i - 1, "::"))) => {
                    let mut path = vec![tokens[i].clone()];
                    while is(i + 1, "::") && is_name(i + 2) {
                        path.push(tokens[i + 2].clone());
                        i += 2;
                    }
                    self.all[module].mentions.insert(path);
                }
                _ => {}
            }
            is_public = false;
            i += 1;
        }
    }

    /// All imports between files that define something. Re-exports are followed to the file that
    /// defines the name; files on the way that define something themselves are imported as well.
    /// A name that a file only hands on is no import of that file.
    pub(crate) fn imports(&self) -> BTreeSet<Import> {
        let mut found = BTreeSet::new();
        for (index, module) in self.all.iter().enumerate() {
            let own = module.uses.iter().filter(|import| !import.is_public).map(|u| &u.path);
            for path in own.chain(&module.mentions) {
                let mut seen = Seen::new();
                let Found::Item { module: defining, name } = self.resolve(index, path, &mut seen)
                else {
                    continue;
                };
                let has = |module: usize, name: &str| {
                    self.all[module].uses.iter().any(|u| u.name.as_deref() == Some(name))
                };
                let on_the_way = seen.into_iter().filter(|(module, name)| has(*module, name));
                for (other, name) in on_the_way.chain([(defining, name)]) {
                    let from = &module.file;
                    let to = &self.all[other].file;
                    if from != to && ![from, to].iter().any(|file| self.faces.contains(*file)) {
                        found.insert(Import { from: from.clone(), to: to.clone(), name });
                    }
                }
            }
        }
        found
    }

    fn resolve(&self, from: usize, path: &[String], seen: &mut Seen) -> Found {
        let mut at = from;
        for (index, name) in path.iter().enumerate() {
            at = match name.as_str() {
                "crate" => self.all[at].root,
                "self" => at,
                "super" => self.all[at].parent,
                _ => match self.look_up(at, name, index + 1 == path.len(), seen) {
                    Some(Found::Module(child)) => child,
                    Some(found) => return found,
                    None if index == 0 => return Found::Foreign,
                    // A macro made it.
                    None => return Found::Item { module: at, name: name.clone() },
                },
            };
        }
        Found::Module(at)
    }

    fn look_up(&self, at: usize, name: &str, is_last: bool, seen: &mut Seen) -> Option<Found> {
        let module = &self.all[at];
        let child = module.children.get(name).map(|&child| Found::Module(child));
        if child.is_some() && !is_last {
            return child;
        }
        if module.definitions.contains(name) {
            return Some(Found::Item { module: at, name: name.into() });
        }
        if !seen.insert((at, name.into())) {
            return child;
        }
        let named = module.uses.iter().filter(|import| import.name.as_deref() == Some(name));
        let mut found: Vec<Found> = named.map(|u| self.resolve(at, &u.path, seen)).collect();
        found.sort_by_key(|found| matches!(found, Found::Foreign));
        if let Some(found) = found.into_iter().next() {
            return Some(found);
        }
        if child.is_some() {
            return child;
        }
        let mut globs = module.uses.iter().filter(|import| import.name.is_none());
        globs.find_map(|glob| match self.resolve(at, &glob.path, seen) {
            Found::Module(other) => self.look_up(other, name, is_last, seen),
            _ => None,
        })
    }
}

fn is_name_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

/// Takes a tree of imports, such as `a::{b, c as d, e::*}`, apart.
fn read_use(tree: &[String], before: &[String], is_public: bool, uses: &mut Vec<Use>) {
    let mut path = before.to_vec();
    let mut i = 0;
    while i < tree.len() {
        match tree[i].as_str() {
            "{" => {
                let end = after_closing(tree, i) - 1;
                let mut begin = i + 1;
                let mut k = begin;
                while k <= end {
                    if k == end || tree[k] == "," {
                        read_use(&tree[begin..k], &path, is_public, uses);
                        begin = k + 1;
                    }
                    k = if tree[k] == "{" { after_closing(tree, k) } else { k + 1 };
                }
                return;
            }
            "*" => return uses.push(Use { name: None, path, is_public }),
            "as" => {
                let name = tree.get(i + 1).cloned();
                return uses.push(Use { name, path, is_public });
            }
            "::" => {}
            "self" if !path.is_empty() => {}
            name => path.push(name.into()),
        }
        i += 1;
    }
    if path.len() > before.len() || tree.first().is_some_and(|token| token == "self") {
        uses.push(Use { name: path.last().cloned(), path, is_public });
    }
}
