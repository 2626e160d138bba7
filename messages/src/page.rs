//! The answers in place of metrics or of the page.

use crate::catalogue::group;

group! {
    "Metrics and the page";
    "These are the answers in place of metrics or of the page. Messages of other sections can stand here too.";

    section ""; "";

    topic {
        message B0701 needs_the_token() = "this needs the token: Authorization: Bearer TOKEN";
    }
    cause "The page asks for its token; a new coordinator has a new one.";
    remedy "`baton serve` printed the token when it started, or named a file for it. Prometheus needs `authorization` in its configuration \
            ([docs/monitoring](monitoring/README.md#metrics)).";

    topic {
        message B0702 open_by_an_address() = "open this by an address such as 127.0.0.1, or as localhost";
    }
    cause "The address in the browser names a host. A foreign page could lead there under a name of its own, so names are refused.";
    remedy "Do what the message says.";

    topic {
        message B0703 page_only_shows() = "this page only shows; `baton serve --http-control` lets it change things";
        message B0704 only_for_the_page() = "only the page itself can ask for this; use the command line instead";
    }
    cause "Buttons work on the page of a coordinator with `--http-control`, and nowhere else.";
    remedy "Use the command line, or start the coordinator with `--http-control`.";

    topic {
        message B0705 many_pages(pages) = "{pages} pages are open already; close one";
        message B0706 many_requests() = "too many requests are under way; try again";
    }
    cause "So many can be open, and so much can be asked for by buttons, at once.";
    remedy "Do what the message says.";

    topic {
        message B0707 work_has_not_ended() = "its work has not ended yet; suspend it first";
    }
    cause "Memory leaves when the program's work in flight has ended.";
    remedy "*Suspend* takes it off the GPU before.";

    topic {
        message B0708 coordinator_does_not_answer() = "the coordinator does not answer";
    }
    cause "The coordinator has not said for ten seconds how things stand.";
    remedy "Look whether its process is stopped.";

    topic {
        message B0709 there_are_metrics() = "only /metrics and /healthz are here";
        message B0710 nothing_is_here() = "there is nothing here";
        message B0711 other_method(method) = "only {method} is answered here";
        message B0712 say_it_as_json() = "send it as application/json";
        message B0713 request_is_too_large(bytes) = "a request has at most {bytes} bytes";
        message B0714 request_is_too_slow() = "the request took too long to come";
        around B0715 request_is_wrong(error) = "{error}";
    }
    cause "The request is not one that the page makes.";
}
