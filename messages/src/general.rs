//! Messages of every command.

use crate::catalogue::group;

group! {
    "Every command"; "";

    section ""; "";

    topic {
        around B0001 of_command(command, error) = "baton {command}: {error}";
        around B0002 of_baton(text) = "baton: {text}";
        around B0003 of_system(error) = "{error}";
        around B0004 of_path(path, error) = "{path}: {error}";
    }
    cause "The system refused something ordinary, in the words at the end, mostly about the file that is named: it is not there, or this \
           user has no right to it.";
    remedy "Correct the name, or the rights.";

    topic {
        around B0005 answered(text) = "{text}";
    }
    cause "The coordinator says so, and is of another build than the command: its messages have no identifiers.";
    remedy "Search [troubleshooting.md](troubleshooting.md) for the words.";

    topic {
        message B0010 output_is_full(output, error) = "{output}: {error}";
    }
    cause "The command's output has no room (a full disk, `/dev/full`). The exit code is 1. A command whose output goes to a pipe that \
           closes \
           ends in silence.";
    remedy "Make room, or send the output elsewhere.";

    topic {
        message B0011 file_is_as_it_was(path, error) = "{path}: {error}; nothing was written to it";
    }
    cause "The file could not be written for the reason given (no room, no rights). It is as it was before: a result is written beside its \
           place, and put there when it is whole.";
    remedy "Make room, or name another file.";

    topic {
        message B0012 interrupted() = "interrupted";
    }
    cause "You ended the command. The exit code is 130.";

    topic {
        message B0013 no_such_identifier(word, nearest) = "no message has the identifier {word}; the nearest one is {nearest}";
    }
    cause "`baton explain` takes identifiers like B0101, which stand in brackets at the end of messages. The message may be of another \
           build \
           of Baton.";
    remedy "`baton explain` without an identifier lists all.";

    topic {
        message B0014 is_missing(path) = "{path} is missing; install Baton's package again, or build everything with `cargo build --release` and \
                                          run target/release/baton";
    }
    cause "`baton`, `libbaton.so` and the example programs belong into one folder; where a package has put `baton` into `PREFIX/bin`, all \
           else belongs into `PREFIX/lib/baton`. This file is not there.";
    remedy "Do what the message says.";
}
