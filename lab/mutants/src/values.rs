//! What a function may return at once instead of doing its work, by its type.

use syn::{GenericArgument, PathArguments, ReturnType, Type};

/// How many values a type has at most here.
const VALUES_MAX: usize = 3;

/// Texts of values of a function's type. None where none is known to compile.
#[must_use]
pub fn of_return(output: &ReturnType) -> Vec<String> {
    match output {
        ReturnType::Default => vec!["()".into()],
        ReturnType::Type(_, kind) => of_type(kind),
    }
}

fn of_type(kind: &Type) -> Vec<String> {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    match kind {
        Type::Paren(inner) => of_type(&inner.elem),
        Type::Tuple(tuple) => {
            let firsts = tuple.elems.iter().map(|elem| of_type(elem).into_iter().next());
            let firsts: Option<Vec<String>> = firsts.collect();
            let list = |firsts: Vec<String>| format!("({})", firsts.join(", "));
            firsts.map(list).into_iter().collect()
        }
        Type::Reference(reference) if reference.mutability.is_none() => match &*reference.elem {
            Type::Path(path) if path.path.is_ident("str") => texts(&["\"\"", "\"xyzzy\""]),
            Type::Slice(_) => texts(&["&[]"]),
            _ => Vec::new(),
        },
        Type::Path(path) => path.path.segments.last().map(of_path).unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn of_path(segment: &syn::PathSegment) -> Vec<String> {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    let inner = || {
        let PathArguments::AngleBracketed(arguments) = &segment.arguments else {
            return vec!["Default::default()".to_owned()];
        };
        let types = arguments.args.iter().filter_map(|argument| match argument {
            GenericArgument::Type(kind) => Some(kind),
            _ => None,
        });
        types.take(1).flat_map(of_type).collect()
    };
    let wrapped = |wrap: &dyn Fn(String) -> String| -> Vec<String> {
        inner().into_iter().map(wrap).take(VALUES_MAX).collect()
    };
    match segment.ident.to_string().as_str() {
        "bool" => texts(&["true", "false"]),
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i8" | "i16" | "i32" | "i64"
        | "isize" => texts(&["0", "1"]),
        "f32" | "f64" => texts(&["0.0", "1.0"]),
        "String" => texts(&["String::new()", "\"xyzzy\".into()"]),
        "Vec" => {
            let mut values = texts(&["vec![]"]);
            values.extend(inner().into_iter().map(|value| format!("vec![{value}]")).take(1));
            values
        }
        "Option" => {
            let mut values = texts(&["None"]);
            values.extend(wrapped(&|value| format!("Some({value})")));
            values
        }
        "Result" => wrapped(&|value| format!("Ok({value})")),
        "Box" | "Arc" | "Rc" | "Cell" | "RefCell" | "Mutex" => {
            let name = segment.ident.to_string();
            wrapped(&|value| format!("{name}::new({value})"))
        }
        _ => texts(&["Default::default()"]),
    }
}
