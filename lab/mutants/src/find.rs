//! The mutants of a file: other operators, conditions that always hold, functions that return at
//! once. Names are those of cargo-mutants, so that one list of accepted ones serves both.

use std::ops::Range;
use std::path::{Path, PathBuf};

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Arm, Attribute, BinOp, Block, Expr, ExprBinary, ExprStruct, ExprUnary, ImplItemFn, ItemConst,
    ItemFn, ItemImpl, ItemMod, ItemStatic, ItemTrait, Signature, TraitItemFn, UnOp,
};

use crate::values;

/// How a mutant stands in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// These bytes of the region get this text.
    Replace { cut: Range<usize>, put: String },
    /// The function returns this value at once. The region is its body without the braces.
    Return(String),
    /// The arm is never taken. The region is empty and lies behind its pattern.
    SkipArm,
}

/// A mistake that may be chosen when a program runs.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// Number of the line, from 1.
    pub line: usize,
    /// `FILE:LINE:COLUMN: what is changed in FUNCTION`.
    pub name: String,
    /// The expression that is chosen instead of the original.
    pub region: Range<usize>,
    pub change: Change,
}

/// Mutants of a file, and how many places were left out because they are evaluated by the compiler.
#[derive(Debug, Default)]
pub struct Found {
    pub mutants: Vec<Mutant>,
    pub constant: usize,
}

/// The mutants of a file with this path and text. A text that is no Rust has none.
#[must_use]
pub fn mutants(path: &str, text: &str) -> Found {
    let Ok(file) = syn::parse_file(text) else { return Found::default() };
    let mut finder = Finder {
        path,
        text,
        owners: Vec::new(),
        functions: Vec::new(),
        constant_depth: 0,
        found: Found::default(),
    };
    if !is_apart(&file.attrs) {
        finder.visit_file(&file);
    }
    finder.found
}

/// The modules of a file that only tests have, as the paths of their files without the ending, or
/// of their folders.
#[must_use]
pub fn test_modules(path: &str, text: &str) -> Vec<PathBuf> {
    let Ok(file) = syn::parse_file(text) else { return Vec::new() };
    let path = Path::new(path).with_extension("");
    let is_root = ["lib", "main", "mod"].iter().any(|name| path.ends_with(name));
    let folder = if is_root { path.parent().unwrap_or(&path) } else { &path };
    let modules = file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if is_apart(&module.attrs) => Some(&module.ident),
        _ => None,
    });
    modules.map(|name| folder.join(name.to_string())).collect()
}

struct Finder<'a> {
    path: &'a str,
    text: &'a str,
    /// Modules, types and implementations around.
    owners: Vec<String>,
    /// Names of the functions around.
    functions: Vec<String>,
    constant_depth: usize,
    found: Found,
}

/// Whether an item is for tests, for loom or for another processor.
fn is_apart(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        if path.is_ident("test") || path.is_ident("panic_handler") {
            return true;
        }
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let tokens = list.tokens.to_string();
        path.is_ident("cfg") && ["test", "loom", "aarch64"].iter().any(|word| tokens.contains(word))
    })
}

impl Finder<'_> {
    fn source(&self, span: Span) -> String {
        let text = self.text.get(span.byte_range()).unwrap_or_default();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn add(&mut self, at: Span, region: Range<usize>, what: &str, change: Change) {
        if self.constant_depth > 0 {
            self.found.constant += 1;
            return;
        }
        let Some(function) = self.functions.last().cloned() else { return };
        let start = at.start();
        let column = start.column + 1;
        let name = format!("{}:{}:{column}: {what} in {function}", self.path, start.line);
        // cargo-mutants puts the function into the middle of these.
        let name = match &change {
            Change::Return(value) => {
                format!("{}:{}:{column}: replace {function} with {value}", self.path, start.line)
            }
            _ => name,
        };
        self.found.mutants.push(Mutant { line: start.line, name, region, change });
    }

    fn in_owner(&mut self, owner: String, inner: impl FnOnce(&mut Self)) {
        self.owners.push(owner);
        inner(self);
        self.owners.pop();
    }

    fn in_constant(&mut self, inner: impl FnOnce(&mut Self)) {
        self.constant_depth += 1;
        inner(self);
        self.constant_depth -= 1;
    }

    fn function(&mut self, signature: &Signature, block: &Block, inner: impl FnOnce(&mut Self)) {
        let braces = block.span().byte_range();
        let mut body = braces.start + 1..braces.end - 1;
        if let Some(first) = block.stmts.first() {
            body.start = first.span().byte_range().start;
        }
        let name = signature.ident.to_string();
        let path: Vec<&str> =
            self.owners.iter().map(String::as_str).chain([name.as_str()]).collect();
        self.functions.push(path.join("::"));
        self.constant_depth += usize::from(signature.constness.is_some());
        if !block.stmts.is_empty() && signature.unsafety.is_none() {
            let output = match &signature.output {
                syn::ReturnType::Default => String::new(),
                syn::ReturnType::Type(_, kind) => format!(" -> {}", self.source(kind.span())),
            };
            let written = self.source(block.span());
            for value in values::of_return(&signature.output) {
                if written != format!("{{ {value} }}") {
                    let at = block.stmts[0].span();
                    let what = Change::Return(value);
                    let function = self.functions.last().cloned().unwrap_or_default();
                    self.functions.push(function + &output);
                    self.add(at, body.clone(), "", what);
                    self.functions.pop();
                }
            }
        }
        inner(self);
        self.constant_depth -= usize::from(signature.constness.is_some());
        self.functions.pop();
    }
}

/// What an operator may be mistaken for.
fn others(operator: &BinOp) -> &'static [&'static str] {
    match operator {
        BinOp::Add(_) => &["-", "*"],
        BinOp::Sub(_) => &["+", "/"],
        BinOp::Mul(_) => &["+", "/"],
        BinOp::Div(_) => &["%", "*"],
        BinOp::Rem(_) => &["/", "+"],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::BitXor(_) => &["|", "&"],
        BinOp::BitAnd(_) => &["|", "^"],
        BinOp::BitOr(_) => &["&", "^"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Lt(_) => &["==", ">", "<="],
        BinOp::Le(_) => &[">", "<"],
        BinOp::Gt(_) => &["==", "<", ">="],
        BinOp::Ge(_) => &["<", ">"],
        BinOp::AddAssign(_) => &["-=", "*="],
        BinOp::SubAssign(_) => &["+=", "/="],
        BinOp::MulAssign(_) => &["+=", "/="],
        BinOp::BitAndAssign(_) => &["|="],
        BinOp::BitOrAssign(_) => &["&="],
        BinOp::BitXorAssign(_) => &["|=", "&="],
        BinOp::ShlAssign(_) => &[">>="],
        BinOp::ShrAssign(_) => &["<<="],
        _ => &[],
    }
}

/// Whether a condition binds names, so that it can't stand in parentheses.
fn binds(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => binds(&binary.left) || binds(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_apart(&item.attrs) {
            self.in_owner(item.ident.to_string(), |finder| visit::visit_item_mod(finder, item));
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if is_apart(&item.attrs) {
            return;
        }
        let kind = self.source(item.self_ty.span());
        let owner = match &item.trait_ {
            Some((_, name, _)) => format!("<impl {} for {kind}>", self.source(name.span())),
            None => kind,
        };
        self.in_owner(owner, |finder| visit::visit_item_impl(finder, item));
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        if !is_apart(&item.attrs) {
            self.in_owner(item.ident.to_string(), |finder| visit::visit_item_trait(finder, item));
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_apart(&item.attrs) {
            self.function(&item.sig, &item.block, |finder| visit::visit_item_fn(finder, item));
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !is_apart(&item.attrs) {
            self.function(&item.sig, &item.block, |finder| visit::visit_impl_item_fn(finder, item));
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default
            && !is_apart(&item.attrs)
        {
            self.function(&item.sig, block, |finder| visit::visit_trait_item_fn(finder, item));
        }
    }

    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        self.in_constant(|finder| visit::visit_item_const(finder, item));
    }

    fn visit_item_static(&mut self, item: &'ast ItemStatic) {
        self.in_constant(|finder| visit::visit_item_static(finder, item));
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.in_constant(|finder| visit::visit_impl_item_const(finder, item));
    }

    fn visit_expr_const(&mut self, item: &'ast syn::ExprConst) {
        self.in_constant(|finder| visit::visit_expr_const(finder, item));
    }

    fn visit_expr_repeat(&mut self, item: &'ast syn::ExprRepeat) {
        self.visit_expr(&item.expr);
        self.in_constant(|finder| finder.visit_expr(&item.len));
    }

    fn visit_type(&mut self, item: &'ast syn::Type) {
        self.in_constant(|finder| visit::visit_type(finder, item));
    }

    fn visit_generic_argument(&mut self, item: &'ast syn::GenericArgument) {
        self.in_constant(|finder| visit::visit_generic_argument(finder, item));
    }

    fn visit_pat(&mut self, item: &'ast syn::Pat) {
        self.in_constant(|finder| visit::visit_pat(finder, item));
    }

    fn visit_expr_binary(&mut self, item: &'ast ExprBinary) {
        if !binds(&item.left) && !binds(&item.right) {
            let written = self.source(item.op.span());
            for other in others(&item.op) {
                let cut = item.op.span().byte_range();
                let what = format!("replace {written} with {other}");
                let change = Change::Replace { cut, put: (*other).into() };
                self.add(item.op.span(), item.span().byte_range(), &what, change);
            }
        }
        visit::visit_expr_binary(self, item);
    }

    fn visit_expr_unary(&mut self, item: &'ast ExprUnary) {
        if let UnOp::Not(_) | UnOp::Neg(_) = item.op {
            let what = format!("delete {}", self.source(item.op.span()));
            let cut = item.op.span().byte_range();
            let change = Change::Replace { cut, put: String::new() };
            self.add(item.op.span(), item.span().byte_range(), &what, change);
        }
        visit::visit_expr_unary(self, item);
    }

    fn visit_expr_struct(&mut self, item: &'ast ExprStruct) {
        let name = self.source(item.path.span());
        for pair in item.fields.pairs().filter(|_| item.rest.is_some()) {
            let field = pair.value().span();
            let mut cut = field.byte_range();
            if let Some(comma) = pair.punct() {
                cut.end = comma.span().byte_range().end;
            }
            let member = match &pair.value().member {
                syn::Member::Named(name) => name.to_string(),
                syn::Member::Unnamed(index) => index.index.to_string(),
            };
            let what = format!("delete field {member} from struct {name} expression");
            let change = Change::Replace { cut, put: String::new() };
            self.add(field, item.span().byte_range(), &what, change);
        }
        visit::visit_expr_struct(self, item);
    }

    fn visit_expr_match(&mut self, item: &'ast syn::ExprMatch) {
        // A name in capitals is a value, such as `None`.
        let is_rest = |pattern: &syn::Pat| match pattern {
            syn::Pat::Wild(_) => true,
            syn::Pat::Ident(name) => {
                name.subpat.is_none() && name.ident.to_string().starts_with(char::is_lowercase)
            }
            _ => false,
        };
        let has_rest = item.arms.iter().any(|arm| arm.guard.is_none() && is_rest(&arm.pat));
        for arm in item.arms.iter().filter(|_| has_rest) {
            if arm.guard.is_none() && !is_rest(&arm.pat) && !is_apart(&arm.attrs) {
                let end = arm.pat.span().byte_range().end;
                let what = format!("delete match arm {}", self.source(arm.pat.span()));
                self.add(arm.pat.span(), end..end, &what, Change::SkipArm);
            }
        }
        visit::visit_expr_match(self, item);
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        if let Some((_, guard)) = arm.guard.as_ref().filter(|(_, guard)| !binds(guard)) {
            for value in ["true", "false"] {
                let what =
                    format!("replace match guard {} with {value}", self.source(guard.span()));
                let cut = guard.span().byte_range();
                let change = Change::Replace { cut: cut.clone(), put: value.into() };
                self.add(guard.span(), cut, &what, change);
            }
        }
        visit::visit_arm(self, arm);
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::test_modules;

    #[test]
    fn modules_of_tests_are_found() {
        let text = "mod a; #[cfg(test)] mod b; #[cfg(loom)] mod c {} mod d { fn f() {} }";
        let names = |path: &str| test_modules(path, text);
        assert_eq!(names("x/src/lib.rs"), ["x/src/b", "x/src/c"].map(PathBuf::from));
        assert_eq!(names("src/e/f.rs"), ["src/e/f/b", "src/e/f/c"].map(PathBuf::from));
    }
}
