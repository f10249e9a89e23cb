//! Finds functions for other files whose errors are mere texts.

use syn::visit::{self, Visit};
use syn::{GenericArgument, Meta, PathArguments, Signature, Type, Visibility};

/// Collects the names of functions that are `pub` or `pub(crate)` and return `Result<…, String>`.
#[derive(Default)]
pub struct TextErrors(pub Vec<String>);

impl TextErrors {
    fn check(&mut self, visibility: &Visibility, signature: &Signature) {
        let is_shared = match visibility {
            Visibility::Public(_) => true,
            Visibility::Restricted(limit) => limit.path.is_ident("crate"),
            Visibility::Inherited => false,
        };
        let mut output = TextResult(false);
        output.visit_return_type(&signature.output);
        if is_shared && output.0 {
            self.0.push(signature.ident.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for TextErrors {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.check(&function.vis, &function.sig);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.check(&function.vis, &function.sig);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let is_test = |attribute: &syn::Attribute| match &attribute.meta {
            Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
            _ => false,
        };
        if !module.attrs.iter().any(is_test) {
            visit::visit_item_mod(self, module);
        }
    }
}

/// True once a type `Result<…, String>` was visited.
struct TextResult(bool);

impl<'ast> Visit<'ast> for TextResult {
    fn visit_path_segment(&mut self, segment: &'ast syn::PathSegment) {
        if segment.ident == "Result"
            && let PathArguments::AngleBracketed(arguments) = &segment.arguments
            && let [_, GenericArgument::Type(Type::Path(error))] =
                &arguments.args.iter().collect::<Vec<_>>()[..]
        {
            self.0 |= error.path.is_ident("String");
        }
        visit::visit_path_segment(self, segment);
    }
}
