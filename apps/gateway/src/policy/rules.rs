//! `--allow` and `--deny` as one list in command-line order; clap returns the values of each option separately.
//!
//! Tests: below.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::rule::{Rule, allow, deny};

/// The rules of the command line, in order.
#[derive(Clone, Default, Debug)]
pub struct Rules(pub Vec<Rule>);

const OPTIONS: [&str; 2] = ["allow", "deny"];

impl FromArgMatches for Rules {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut found = Vec::new();
        for option in OPTIONS {
            let (Some(rules), Some(places)) = (matches.get_many::<Rule>(option), matches.indices_of(option))
            else {
                continue;
            };
            found.extend(places.zip(rules.cloned()));
        }
        found.sort_by_key(|(place, _)| *place);
        Ok(Self(found.into_iter().map(|(_, rule)| rule).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Rules {
    fn augment_args(command: Command) -> Command {
        let option =
            |name: &'static str| Arg::new(name).long(name).value_name("DEST").action(ArgAction::Append);
        command
            .arg(option(OPTIONS[0]).value_parser(allow).help(
                "Permit a destination: a network, a name or *, with :PORT or :FIRST-LAST; the first --allow or --deny that matches decides",
            ))
            .arg(option(OPTIONS[1]).value_parser(deny).help("Refuse a destination, written the same way"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_stand_in_the_order_of_the_command_line() {
        let command = Rules::augment_args(Command::new("test"));
        let words = ["test", "--deny", "10.0.0.1", "--allow", "10.0.0.0/8", "--deny", "*"];
        let rules = Rules::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap();
        assert_eq!(rules.0, [deny("10.0.0.1").unwrap(), allow("10.0.0.0/8").unwrap(), deny("*").unwrap()]);
    }
}
