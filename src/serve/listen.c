/* listen.c — addresses and the socket of a server. */
#include "internal.h"

#include <netdb.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

bool mx_serve_address(MxArena *arena, const char *text, char **host, char **port, MxError *err) {
    const char *colon = strrchr(text, ':'), *number = colon ? colon + 1 : text;
    size_t n = colon ? (size_t)(colon - text) : 0;
    bool in_brackets = n > 2 && text[0] == '[' && text[n - 1] == ']';
    char *end;
    long value = strtol(number, &end, 10);
    bool is_number = *number >= '0' && *number <= '9' && !*end && value <= UINT16_MAX;
    bool is_plain = !colon || in_brackets || (n && !memchr(text, ':', n));
    if (!is_number || !is_plain)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "--serve: found \"%s\", wanted HOST:PORT or PORT, such as 127.0.0.1:8080",
                       text);
    *host = !colon        ? mx_arena_strndup(arena, "127.0.0.1", 9)
            : in_brackets ? mx_arena_strndup(arena, text + 1, n - 2)
                          : mx_arena_strndup(arena, text, n);
    *port = mx_arena_strndup(arena, number, strlen(number));
    return true;
}

/* ---- */

bool serve_bind(MxArena *arena, const char *address, int *out, char **url, MxError *err) {
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV | AI_NUMERICHOST};
    struct addrinfo *found;
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    char *host, *port, name[NI_MAXHOST], number[NI_MAXSERV];
    if (!mx_serve_address(arena, address, &host, &port, err)) return false;
    int code = getaddrinfo(strcmp(host, "localhost") ? host : "127.0.0.1", port, &hints, &found);
    if (code)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "--serve: \"%s\" is no address of numbers, nor localhost (%s)", host,
                       gai_strerror(code));
    *out = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = *out >= 0 && !setsockopt(*out, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) &&
              !bind(*out, found->ai_addr, found->ai_addrlen) &&
              !getsockname(*out, (struct sockaddr *)&bound, &size);
    freeaddrinfo(found);
    if (!ok) {
        mx_fail_errno(err, "--serve: could not listen at %s", address);
        if (*out >= 0) close(*out);
        return false;
    }
    getnameinfo((struct sockaddr *)&bound, size, name, sizeof name, number, sizeof number,
                NI_NUMERICHOST | NI_NUMERICSERV);
    *url =
        mx_arena_printf(arena, strchr(name, ':') ? "http://[%s]:%s" : "http://%s:%s", name, number);
    return true;
}
