/* A recipe is parsed or refused with a message; whatever passes has only narrow strings. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "image/recipe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct recipe recipe;
    struct err err = {0};
    if (recipe_parse("build.json", (const char *)data, size, &recipe, &err) < 0) {
        assert(err.message[0]);
        return 0;
    }
    for (size_t i = 0; i < recipe.package_count; i++)
        assert(recipe.packages[i][0] != '-' && !strpbrk(recipe.packages[i], ", /?*"));
    for (size_t i = 0; i < recipe.npm_count; i++)
        assert(recipe.npm[i][0] != '-' && !strpbrk(recipe.npm[i], " :*^~"));
    for (size_t i = 0; i < recipe.link_count; i++)
        assert(recipe.links[i].target[0] == '/' && !strstr(recipe.links[i].target, "/../"));
    recipe_free(&recipe);
    return 0;
}
