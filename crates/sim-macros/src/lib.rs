//! The attribute `#[sockeye_sim::test]`.
//!
//! It knows the shape of a function's first tokens and nothing else, so it needs no parser of Rust and costs no build time. What it makes is a call of
//! `sockeye_sim::Seeds`, which does all the work. The tokens of the function are passed on as they are, so compiler errors in it point at its own lines. Tests:
//! `crates/sim/tests/seeds.rs`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// Makes a test of an asynchronous function, which runs once for each seed: on all cores, each run with a network of its own.
///
/// ```ignore
/// #[sockeye_sim::test(seeds = 0..1000, tokio)]
/// async fn a_client_retries(net: Net) { /* ... */ }
/// ```
///
/// | argument | meaning |
/// |---|---|
/// | `seeds = 0..1000` | a range of seeds, or another iterator of `u64`. Default: `0..100` |
/// | `tokio` | with `Sim::tokio` |
/// | `processes` | a process for each seed, as `Seeds::processes` |
/// | `sim = \|sim\| sim.time_max(HOUR)` | changes the settings of all runs |
///
/// The function takes the `Net`, or nothing, and returns nothing or a `Result<(), E>` whose error has `Debug`. Other attributes, such as `#[should_panic]` and
/// `#[ignore]`, stay on the test. Environment variables choose seeds and report results: see `sockeye_sim::Seeds`.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, function: TokenStream) -> TokenStream {
    expand(arguments, function).unwrap_or_else(|message| {
        let error = format!("::core::compile_error!({message:?});");
        error.parse().expect("a string literal is valid")
    })
}

fn expand(arguments: TokenStream, function: TokenStream) -> Result<TokenStream, String> {
    let settings = settings(arguments)?;
    let (attributes, body) = split_attributes(function);
    let tokens: Vec<TokenTree> = body.clone().into_iter().collect();
    let is =
        |tree: &TokenTree, word: &str| matches!(tree, TokenTree::Ident(ident) if ident.to_string() == word);
    let place = tokens.iter().position(|tree| is(tree, "fn"));
    let place = place.ok_or("#[sockeye_sim::test] is for functions")?;
    if !tokens[..place].iter().any(|tree| is(tree, "async")) {
        return Err("the function of #[sockeye_sim::test] must be async".into());
    }
    let (name, parameters) = match &tokens[place + 1..] {
        [TokenTree::Ident(name), TokenTree::Group(parameters), ..]
            if parameters.delimiter() == Delimiter::Parenthesis =>
        {
            (name.to_string(), parameters.stream())
        }
        _ => return Err("the function of #[sockeye_sim::test] must not be generic".into()),
    };
    let main = if parameters.is_empty() { format!("|_| {name}()") } else { name.clone() };
    let head = parse(&format!("#[::core::prelude::v1::test] fn {name}()"))?;
    let call = parse(&format!(".run({main})"))?;
    let inside = [body, settings, call].into_iter().flatten().collect();
    let inside = TokenTree::Group(Group::new(Delimiter::Brace, inside));
    Ok([attributes, head, inside.into()].into_iter().flatten().collect())
}

fn parse(code: &str) -> Result<TokenStream, String> {
    code.parse().map_err(|error| format!("{code:?}: {error}"))
}

/// The call of `Seeds` that the arguments ask for.
fn settings(arguments: TokenStream) -> Result<TokenStream, String> {
    let mut seeds = parse("0..100")?;
    let mut more = Vec::new();
    let trees: Vec<TokenTree> = arguments.into_iter().collect();
    let is_comma = |tree: &TokenTree| matches!(tree, TokenTree::Punct(punct) if punct.as_char() == ',');
    for argument in trees.split(is_comma).filter(|argument| !argument.is_empty()) {
        let word = argument[0].to_string();
        let value = match &argument[1..] {
            [TokenTree::Punct(punct), value @ ..] if punct.as_char() == '=' && !value.is_empty() => {
                Some(value.iter().cloned().collect::<TokenStream>())
            }
            [] => None,
            _ => return Err(format!("write {word} = VALUE")),
        };
        match (word.as_str(), value) {
            ("seeds", Some(value)) => seeds = value,
            ("tokio", None) => more.push(parse(".sim(|sim| sim.tokio())")?),
            ("processes", None) => more.push(parse(".processes()")?),
            ("sim", Some(value)) => {
                let value = TokenTree::Group(Group::new(Delimiter::Parenthesis, value));
                more.push([parse(".sim")?, value.into()].into_iter().flatten().collect());
            }
            _ => {
                return Err(format!(
                    "#[sockeye_sim::test] has the arguments seeds = RANGE, tokio, processes and sim = CLOSURE, not {word:?}"
                ));
            }
        }
    }
    let seeds = TokenTree::Group(Group::new(Delimiter::Parenthesis, seeds));
    let first = [parse("::sockeye_sim::Seeds::new")?, seeds.into()];
    Ok(first.into_iter().chain(more).flatten().collect())
}

/// The attributes of a function, and the rest of it.
fn split_attributes(function: TokenStream) -> (TokenStream, TokenStream) {
    let mut trees = function.into_iter().peekable();
    let mut attributes = Vec::new();
    while matches!(trees.peek(), Some(TokenTree::Punct(punct)) if punct.as_char() == '#') {
        attributes.extend(trees.by_ref().take(2));
    }
    (attributes.into_iter().collect(), trees.collect())
}
