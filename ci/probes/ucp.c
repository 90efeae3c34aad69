/* Asserts that what tagmatch-ucx-sys declares is what the installed ucp/api/ucp.h says; see
 * ci/parts/headers. facts.inc is printed by its example ucp_layout: one line a fact. */
#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>
#include <stddef.h>

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), "size of " #type);
#define FIELD(type, field, offset, size)                                                          \
	_Static_assert(offsetof(type, field) == (offset), "offset of " #type "." #field);          \
	_Static_assert(sizeof(((type *)0)->field) == (size), "size of " #type "." #field);
#define VALUE(name, value) _Static_assert((long long)(name) == (value##ll), "value of " #name);

#include "facts.inc"

_Static_assert(sizeof(ucs_status_t) == 1, "statuses are bytes");
_Static_assert(sizeof(ucs_log_level_t) == 4, "levels are ints");
