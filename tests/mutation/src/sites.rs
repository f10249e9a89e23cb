//! Finds the places of a source file that cargo-mutants changes.

use std::collections::HashMap;
use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Block, Expr, ReturnType, Signature, UnOp};

/// The way in which a place can be changed, with byte ranges of the file.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A function whose statements begin at this offset: it can return early.
    Body(usize),
    /// A binary operator: the whole expression and its operands.
    Operator { whole: Range<usize>, left: Range<usize>, right: Range<usize> },
    /// A unary operator: the whole expression and its operand.
    Prefix { whole: Range<usize>, operand: Range<usize> },
    /// An arm of a `match` whose pattern ends at this offset.
    Arm(usize),
    /// The condition of an arm.
    Guard(Range<usize>),
    /// A field of a struct literal, and the expression that has the other fields.
    Field { value: Range<usize>, is_shorthand: bool, rest: Range<usize> },
}

/// The name of a mutant without its line: it stays the same when other code of the file changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The path of the file, relative to the repository.
    pub file: String,
    /// The path of the function within the file; empty outside functions.
    pub function: String,
    /// The genre, as cargo-mutants names it.
    pub genre: String,
    /// The operator, pattern, condition or field that is replaced.
    pub original: String,
    /// The number among equal places of the function, from 1.
    pub nth: usize,
}

/// A place that cargo-mutants changes.
#[derive(Clone, Debug)]
pub struct Site {
    pub key: Key,
    /// The line and column where cargo-mutants reports it, both from 1.
    pub position: (usize, usize),
    pub shape: Shape,
    /// True where a condition cannot be inserted: in constants, and beside `let` in a chain of conditions.
    pub is_fixed: bool,
}

/// Returns the places of a file in the order of a walk from outer to inner expressions.
///
/// # Errors
/// Returns the message of the parser.
pub fn sites(file: &str, text: &str) -> Result<Vec<Site>, String> {
    let tree = syn::parse_file(text).map_err(|error| format!("{file}: {error}"))?;
    let mut walk = Walk {
        file,
        text,
        sites: Vec::new(),
        path: Vec::new(),
        functions: Vec::new(),
        constant: 0,
    };
    walk.visit_file(&tree);
    let mut seen: HashMap<Key, usize> = HashMap::new();
    for site in &mut walk.sites {
        let count = seen.entry(site.key.clone()).or_default();
        *count += 1;
        site.key.nth = *count;
    }
    Ok(walk.sites)
}

struct Walk<'t> {
    file: &'t str,
    text: &'t str,
    sites: Vec<Site>,
    path: Vec<String>,
    functions: Vec<String>,
    /// The depth of constants around the current node.
    constant: usize,
}

impl Walk<'_> {
    fn text(&self, span: Span) -> String {
        let text = self.text.get(span.byte_range()).unwrap_or_default();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn push(&mut self, genre: &str, original: String, at: Span, shape: Shape, is_fixed: bool) {
        let start = at.start();
        let key = Key {
            file: self.file.to_owned(),
            function: self.functions.last().cloned().unwrap_or_default(),
            genre: genre.to_owned(),
            original,
            nth: 0,
        };
        let position = (start.line, start.column + 1);
        self.sites.push(Site { key, position, shape, is_fixed: is_fixed || self.constant > 0 });
    }

    fn within(&mut self, name: String, walk: impl FnOnce(&mut Self)) {
        self.path.push(name);
        walk(self);
        self.path.pop();
    }

    fn function(&mut self, signature: &Signature, block: &Block, walk: impl FnOnce(&mut Self)) {
        let Some(first) = block.stmts.first() else { return };
        if signature.unsafety.is_some() {
            return;
        }
        self.path.push(signature.ident.to_string());
        self.functions.push(self.path.join("::"));
        self.constant += usize::from(signature.constness.is_some());
        let returns_impl = match &signature.output {
            ReturnType::Type(_, kind) => self.text(kind.span()).contains("impl "),
            ReturnType::Default => false,
        };
        let shape = Shape::Body(first.span().byte_range().start);
        let output = match &signature.output {
            ReturnType::Type(_, kind) => self.text(kind.span()),
            ReturnType::Default => String::new(),
        };
        self.push("FnValue", output, first.span(), shape, returns_impl);
        walk(self);
        self.constant -= usize::from(signature.constness.is_some());
        self.functions.pop();
        self.path.pop();
    }

    fn constant(&mut self, walk: impl FnOnce(&mut Self)) {
        self.constant += 1;
        walk(self);
        self.constant -= 1;
    }
}

/// Returns true for attributes of tests, which cargo-mutants does not change.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let is_cfg = path.is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| {
                list.tokens.clone().into_iter().any(|token| token.to_string() == "test")
                    || list.tokens.to_string().contains("(test")
            });
        is_cfg || path.segments.last().is_some_and(|last| last.ident == "test")
    })
}

/// Returns true if a condition has `let` on the level of its `&&`.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        if !is_test(&node.attrs) {
            self.function(&node.sig, &node.block, |walk| visit::visit_item_fn(walk, node));
        }
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        if !is_test(&node.attrs) && node.sig.ident != "new" {
            self.function(&node.sig, &node.block, |walk| visit::visit_impl_item_fn(walk, node));
        }
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        if let Some(block) = &node.default
            && !is_test(&node.attrs)
            && node.sig.ident != "new"
        {
            self.function(&node.sig, block, |walk| visit::visit_trait_item_fn(walk, node));
        }
    }

    fn visit_item_impl(&mut self, node: &'ast syn::ItemImpl) {
        if is_test(&node.attrs) {
            return;
        }
        let name = self.text(node.self_ty.span());
        let name = match &node.trait_ {
            Some((_, path, _))
                if path.segments.last().is_some_and(|last| last.ident == "Default") =>
            {
                return;
            }
            Some((_, path, _)) => format!("<impl {} for {name}>", self.text(path.span())),
            None => name,
        };
        self.within(name, |walk| visit::visit_item_impl(walk, node));
    }

    fn visit_item_trait(&mut self, node: &'ast syn::ItemTrait) {
        if !is_test(&node.attrs) {
            self.within(node.ident.to_string(), |walk| visit::visit_item_trait(walk, node));
        }
    }

    fn visit_item_mod(&mut self, node: &'ast syn::ItemMod) {
        if !is_test(&node.attrs) {
            self.within(node.ident.to_string(), |walk| visit::visit_item_mod(walk, node));
        }
    }

    fn visit_item_const(&mut self, node: &'ast syn::ItemConst) {
        self.constant(|walk| visit::visit_item_const(walk, node));
    }

    fn visit_impl_item_const(&mut self, node: &'ast syn::ImplItemConst) {
        self.constant(|walk| visit::visit_impl_item_const(walk, node));
    }

    fn visit_item_static(&mut self, node: &'ast syn::ItemStatic) {
        self.constant(|walk| visit::visit_item_static(walk, node));
    }

    fn visit_expr_const(&mut self, node: &'ast syn::ExprConst) {
        self.constant(|walk| visit::visit_expr_const(walk, node));
    }

    fn visit_type(&mut self, node: &'ast syn::Type) {
        self.constant(|walk| visit::visit_type(walk, node));
    }

    fn visit_pat(&mut self, node: &'ast syn::Pat) {
        self.constant(|walk| visit::visit_pat(walk, node));
    }

    fn visit_variant(&mut self, node: &'ast syn::Variant) {
        self.constant(|walk| visit::visit_variant(walk, node));
    }

    fn visit_expr_binary(&mut self, node: &'ast syn::ExprBinary) {
        let shape = Shape::Operator {
            whole: node.span().byte_range(),
            left: node.left.span().byte_range(),
            right: node.right.span().byte_range(),
        };
        let is_fixed = matches!(node.op, BinOp::And(_) | BinOp::Or(_))
            && (has_let(&node.left) || has_let(&node.right));
        self.push("BinaryOperator", self.text(node.op.span()), node.op.span(), shape, is_fixed);
        visit::visit_expr_binary(self, node);
    }

    fn visit_expr_unary(&mut self, node: &'ast syn::ExprUnary) {
        if matches!(node.op, UnOp::Not(_) | UnOp::Neg(_)) {
            let (whole, operand) = (node.span().byte_range(), node.expr.span().byte_range());
            let shape = Shape::Prefix { whole, operand };
            self.push("UnaryOperator", self.text(node.op.span()), node.op.span(), shape, false);
        }
        visit::visit_expr_unary(self, node);
    }

    fn visit_expr_match(&mut self, node: &'ast syn::ExprMatch) {
        // Without an arm that takes everything else, no other one can be deleted.
        let has_rest =
            node.arms.iter().any(|arm| arm.guard.is_none() && matches!(arm.pat, syn::Pat::Wild(_)));
        for arm in &node.arms {
            if let Some((_, guard)) = &arm.guard {
                let shape = Shape::Guard(guard.span().byte_range());
                let original = self.text(guard.span());
                self.push("MatchArmGuard", original, guard.span(), shape, has_let(guard));
            } else {
                let shape = Shape::Arm(arm.pat.span().byte_range().end);
                self.push("MatchArm", self.text(arm.pat.span()), arm.span(), shape, !has_rest);
            }
        }
        visit::visit_expr_match(self, node);
    }

    fn visit_expr_struct(&mut self, node: &'ast syn::ExprStruct) {
        if let Some(rest) = &node.rest {
            for field in &node.fields {
                let shape = Shape::Field {
                    value: field.expr.span().byte_range(),
                    is_shorthand: field.colon_token.is_none(),
                    rest: rest.span().byte_range(),
                };
                self.push(
                    "StructField",
                    self.text(field.member.span()),
                    field.span(),
                    shape,
                    false,
                );
            }
        }
        visit::visit_expr_struct(self, node);
    }
}
