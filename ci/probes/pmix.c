/* Asserts that what launch/src/pmix/layout.rs declares is what the installed pmix_common.h and pmix.h say; see
 * ci/parts/headers. facts.inc is printed by its example pmix_layout: one line a fact. */
#include <pmix.h>
#include <stddef.h>

/* A name for the union that C leaves without one. */
typedef typeof(((pmix_value_t *)0)->data) pmix_value_data;

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), "size of " #type);
#define FIELD(type, field, offset, size)                                                          \
	_Static_assert(offsetof(type, field) == (offset), "offset of " #type "." #field);          \
	_Static_assert(sizeof(((type *)0)->field) == (size), "size of " #type "." #field);
#define VALUE(name, value) _Static_assert((long long)(name) == (value##ll), "value of " #name);
#define TEXT(name, text) _Static_assert(__builtin_strcmp(name, text) == 0, "text of " #name);

#include "facts.inc"

_Static_assert(sizeof(pmix_status_t) == sizeof(int), "statuses are ints");
_Static_assert(sizeof(pmix_scope_t) == 1, "scopes are bytes");

/* The types by which we call the functions. */
int (*init)(pmix_proc_t *, pmix_info_t *, size_t) = PMIx_Init;
int (*finalize)(const pmix_info_t *, size_t) = PMIx_Finalize;
int (*job_abort)(int, const char *, pmix_proc_t *, size_t) = PMIx_Abort;
int (*put)(unsigned char, const char *, pmix_value_t *) = PMIx_Put;
int (*commit)(void) = PMIx_Commit;
int (*fence)(const pmix_proc_t *, size_t, const pmix_info_t *, size_t) = PMIx_Fence;
int (*fence_nb)(const pmix_proc_t *, size_t, const pmix_info_t *, size_t, void (*)(int, void *), void *) = PMIx_Fence_nb;
int (*get)(const pmix_proc_t *, const char *, const pmix_info_t *, size_t, pmix_value_t **) = PMIx_Get;
int (*spawn)(const pmix_info_t *, size_t, const pmix_app_t *, size_t, char *) = PMIx_Spawn;
