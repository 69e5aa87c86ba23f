//! Where in a file of Rust faults can be put.

use proc_macro2::TokenTree;
use std::collections::HashMap;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

pub type Bytes = Range<usize>;

/// Places by the bytes that cargo-mutants gives for them.
#[derive(Default)]
pub struct Places {
    /// Operator → its expression.
    pub operators: HashMap<Bytes, Bytes>,
    /// Blocks, with their braces.
    pub blocks: Vec<Bytes>,
    /// Arm → the condition behind its `if`, or where there is none, the end of its pattern.
    pub arms: HashMap<Bytes, Bytes>,
    /// Conditions behind an arm's `if`.
    pub conditions: HashMap<Bytes, Bytes>,
    /// Start of a field in a struct expression → the expression.
    pub fields: HashMap<usize, Bytes>,
    /// Conditions whose fall lets something wrong pass, and what they are then.
    pub guards: Vec<(Bytes, &'static str)>,
}

impl Places {
    pub fn of(text: &str) -> syn::Result<Self> {
        let mut places = Self::default();
        places.visit_file(&syn::parse_file(text)?);
        Ok(places)
    }

    /// A condition of which each part that is enough by itself is a guard.
    fn guard(&mut self, condition: &syn::Expr, becomes: &'static str) {
        match condition {
            syn::Expr::Binary(syn::ExprBinary { left, op: syn::BinOp::Or(_), right, .. }) if becomes == "false" => {
                self.guard(left, becomes);
                self.guard(right, becomes);
            }
            syn::Expr::Binary(syn::ExprBinary { left, op: syn::BinOp::And(_), right, .. }) if becomes == "true" => {
                self.guard(left, becomes);
                self.guard(right, becomes);
            }
            syn::Expr::Paren(inner) => self.guard(&inner.expr, becomes),
            other if has_let(other) => {}
            other => self.guards.push((bytes(other), becomes)),
        }
    }
}

fn bytes(node: &impl Spanned) -> Bytes {
    node.span().byte_range()
}

/// `a && let …` is no expression of its own.
fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// Something says `Err` or `None` there, or calls what is named after damage.
fn is_error(node: &impl quote::ToTokens) -> bool {
    fn any(tokens: proc_macro2::TokenStream) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(name) => {
                let name = name.to_string();
                name == "Err" || name == "None" || name.contains("damage") || name.contains("invalid")
            }
            TokenTree::Group(group) => any(group.stream()),
            _ => false,
        })
    }
    any(node.to_token_stream())
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for Places {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.blocks.push(bytes(block));
        visit::visit_block(self, block);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if !has_let(&binary.left) && !has_let(&binary.right) {
            self.operators.insert(bytes(&binary.op), bytes(binary));
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        self.operators.insert(bytes(&unary.op), bytes(unary));
        visit::visit_expr_unary(self, unary);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let end = bytes(&arm.pat).end;
        let place = match &arm.guard {
            Some((_, condition)) => {
                self.conditions.insert(bytes(condition), bytes(condition));
                if is_error(&arm.body) {
                    self.guard(condition, "false");
                }
                bytes(condition)
            }
            None => end..end,
        };
        self.arms.insert(bytes(arm), place);
        visit::visit_arm(self, arm);
    }

    fn visit_expr_struct(&mut self, expression: &'ast syn::ExprStruct) {
        for field in &expression.fields {
            self.fields.insert(bytes(field).start, bytes(expression));
        }
        visit::visit_expr_struct(self, expression);
    }

    fn visit_expr_if(&mut self, expression: &'ast syn::ExprIf) {
        if expression.then_branch.stmts.last().is_some_and(is_error) {
            self.guard(&expression.cond, "false");
        } else if expression.else_branch.as_ref().is_some_and(|(_, other)| is_error(other)) {
            self.guard(&expression.cond, "true");
        }
        visit::visit_expr_if(self, expression);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if call.method == "filter"
            && let Some(syn::Expr::Closure(closure)) = call.args.first()
        {
            self.guard(&closure.body, "true");
        }
        visit::visit_expr_method_call(self, call);
    }
}
