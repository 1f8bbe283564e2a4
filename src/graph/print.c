/* print.c — a graph as text, one line per node, suitable for diff. */
#include <mx/graph.h>

static void print_type(const MxGraph *graph, MxValue value, MxText *text) {
    MxType type = graph->values[value].type;
    mx_text_add(text, "%s%s", mx_dtype_name(type.dtype), mx_shape_text(graph->arena, type.shape));
}

static void print_outputs(const MxGraph *graph, const MxNode *node, MxText *text) {
    for (int i = 0; i < node->n_out; i++) {
        int var = graph->values[node->out[i]].var;
        mx_text_add(text, "%s%%%d ", i ? ", " : "", node->out[i]);
        print_type(graph, node->out[i], text);
        if (var == MX_NONE) continue;
        bool adds = node->accumulate >> i & 1;
        mx_text_add(text, " %s %s", adds ? "+>" : "->", graph->vars->item[var].name);
    }
}

void mx_graph_print(const MxGraph *graph, MxText *text) {
    mx_text_add(text, "graph %s\n", graph->name);
    for (int n = 0; n < graph->n_nodes; n++) {
        const MxNode *node = &graph->nodes[n];
        mx_text_add(text, "  ");
        print_outputs(graph, node, text);
        mx_text_add(text, " = %s", node->op->name);
        if (node->op->flags & MX_OP_SOURCE)
            mx_text_add(text, " %s", graph->vars->item[*(const int *)node->attr].name);
        else if (node->op->print) {
            size_t bare = text->len;
            mx_text_add(text, " ");
            node->op->print(text, node->attr);
            if (text->len == bare + 1) text->data[--text->len] = 0; /* nothing to tell */
        }
        mx_text_add(text, "(");
        for (int i = 0; i < node->n_in; i++)
            mx_text_add(text, "%s%%%d", i ? ", " : "", node->in[i]);
        mx_text_add(text, ")%s%s\n", *node->scope ? "  # " : "", node->scope);
    }
}
